"""A draft model of its own: any transformers causal LM with the target's token ids."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.sequential import SequentialDrafter
from reference_impl.packed import with_packed_linears
from reference_impl.proposal import Proposal
from reference_impl.recurrent import cached_model
from reference_impl.transfers import to_device


class ModelDrafter(SequentialDrafter):
    """Draws from the draft's law q.

    Parameters
    ----------
    draft : PreTrainedModel
        Its vocabulary may be padded to another width than the target's: ids beyond the shared
        ones are never proposed.
    vocab : int
        Token ids in use.
    stop_below : float
        Of ``SequentialDrafter``.
    """

    follows_the_request = True  # a relative that proposes otherwise must say so

    def __init__(self, draft: PreTrainedModel, vocab: int, stop_below: float = 0.0) -> None:
        dtype = getattr(draft, "packed_dtype", None)
        self.draft = with_packed_linears(draft.eval(), dtype)
        self.vocab = vocab
        self.stop_below = stop_below

    def start(self, batch: Batch, capacity: int) -> None:
        """Feed the texts, all but their last tokens."""
        self._model = cached_model(self.draft, capacity, self.vocab)
        self._model.prefill(batch.texts_but_last())
        self._cached = batch.length - 1

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row, and remember their laws."""
        self._before, self._steps = batch.length, int(count.max())
        proposal = super().propose(batch, count)
        self._steps = proposal.tokens.shape[1]
        self._cached = batch.length + self._steps - 1
        return proposal

    def logits(self, batch: Batch, drafts: Tensor, step: int) -> Tensor:
        """Feed the last draft, or before the first one what was committed since."""
        if not step:
            return self._catch_up(batch)
        return self._feed(drafts[:, -1:], batch.length + step - 1)[:, 0]

    def _catch_up(self, batch: Batch) -> Tensor:
        """Feed the committed tokens that the draft has not seen: one or two, as a rule.

        Returns the logits after the last of them, [B, V].
        """
        missing = np.maximum(batch.length - self._cached, 1)  # ended rows may be ahead
        ids = to_device(self._unseen(batch, missing), batch.device)
        logits = self._feed(ids, self._cached)
        at = to_device(missing - 1, batch.device)
        return logits[torch.arange(len(batch), device=batch.device), at]

    def _unseen(self, batch: Batch, missing: Ints) -> Ints:
        """The ``missing`` [B] tokens of every row that come after the cached ones, padded."""
        return batch.tokens_from(self._cached, int(missing.max()))

    def _feed(self, ids: Tensor, start: Ints) -> Tensor:
        """Feed tokens [B, T] that begin at the positions ``start`` [B]; their logits [B, T, V]."""
        return self._model.forward(ids, start)

    def observe(self, accepted: Ints) -> None:
        """Roll back to the drafts that were accepted; the last one was never fed."""
        self._cached = self._before + np.minimum(accepted, self._steps - 1)

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self._model.select(rows)
        self._cached = self._cached[rows.cpu().numpy()]
