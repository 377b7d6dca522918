"""A draft model of its own: any transformers causal LM with the target's token ids."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.packed import with_packed_linears
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.recurrent import cached_model


class ModelDrafter:
    """Draws K tokens one after the other from the draft's law q, under the request's sampling.

    Parameters
    ----------
    draft : PreTrainedModel
        Its vocabulary may be padded to another width than the target's: ids beyond the shared
        ones are never proposed.
    vocab : int
        Token ids in use.

    Attributes
    ----------
    follows_the_request : bool
        Whether all proposals are drawn from the draft under the request's own sampling: what the
        capability ``model_draft`` says. A relative that proposes otherwise must say so.
    """

    follows_the_request = True

    def __init__(self, draft: PreTrainedModel, vocab: int) -> None:
        dtype = getattr(draft, "packed_dtype", None)
        self.draft = with_packed_linears(draft.eval(), dtype)
        self.vocab = vocab

    def start(self, batch: Batch, capacity: int) -> None:
        """Feed the texts, all but their last tokens."""
        self._model = cached_model(self.draft, capacity, self.vocab)
        self._model.prefill(batch.texts_but_last())
        self._cached = batch.length - 1

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row, and remember their laws."""
        self._before, self._steps = batch.length, int(count.max())
        drafts = torch.empty(len(batch), 0, dtype=torch.int64, device=batch.device)
        laws: list[Tensor] = []
        coins = batch.streams.uniform(self._steps, used=torch.from_numpy(count).to(batch.device))
        logits = self._catch_up(batch)
        for step in range(self._steps):
            if step:
                logits = self._feed(drafts[:, -1:], batch.length + step - 1)[:, 0]
            token, q = self._draw(logits, batch, drafts, coins[:, step])
            drafts = torch.cat([drafts, token.unsqueeze(1)], 1)
            laws += [q] if q is not None else []
        self._cached = batch.length + self._steps - 1
        return Proposal(drafts, count, torch.stack(laws, 1) if laws else None)

    def _catch_up(self, batch: Batch) -> Tensor:
        """Feed the committed tokens that the draft has not seen: one or two, as a rule.

        Returns the logits after the last of them, [B, V].
        """
        missing = np.maximum(batch.length - self._cached, 1)  # ended rows may be ahead
        ids = torch.from_numpy(self._unseen(batch, missing)).to(batch.device)
        logits = self._feed(ids, self._cached)
        at = torch.from_numpy(missing - 1).to(batch.device)
        return logits[torch.arange(len(batch), device=batch.device), at]

    def _unseen(self, batch: Batch, missing: Ints) -> Ints:
        """The ``missing`` [B] tokens of every row that come after the cached ones, padded."""
        return batch.tokens_from(self._cached, int(missing.max()))

    def _feed(self, ids: Tensor, start: Ints) -> Tensor:
        """Feed tokens [B, T] that begin at the positions ``start`` [B]; their logits [B, T, V]."""
        return self._model.forward(ids, start)

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Next draft [B], and its law [B, V]: None if it is a point mass in every row."""
        history = batch.history
        if history is not None and drafts.shape[1]:
            history = history.extended(drafts, torch.ones_like(drafts, dtype=torch.bool))
        new_tokens = batch.new_tokens() + drafts.shape[1]
        processed = sampling.process(logits.float(), batch.parameters, history, new_tokens)
        return self._pick(processed, batch, drafts, u)

    def _pick(
        self, processed: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Choose from processed logits [B, V]; answers as ``_draw`` does."""
        if batch.parameters.greedy:
            return processed.argmax(-1), None
        q = sampling.normalise(processed, batch.parameters)
        return inverse_cdf(q, u), q

    def observe(self, accepted: Ints) -> None:
        """Roll back to the drafts that were accepted; the last one was never fed."""
        self._cached = self._before + np.minimum(accepted, self._steps - 1)

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self._model.select(rows)
        self._cached = self._cached[rows.cpu().numpy()]
