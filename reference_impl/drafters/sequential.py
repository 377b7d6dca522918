"""Drafting token by token: each draft is drawn from a law q that may depend on those before it."""

from __future__ import annotations

import abc

import numpy as np
import torch
from torch import Tensor

from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.transfers import to_device


class SequentialDrafter(abc.ABC):
    """Draws up to K tokens one after the other, under the request's own sampling.

    Attributes
    ----------
    follows_the_request : bool
        Whether all proposals are drawn from the pair's draft model under the request's sampling:
        what the capability ``model_draft`` says.
    stop_below : float
        Adaptive K: a row stops drafting where the largest probability of its logits' softmax is
        below this. It is looked at before the token is drawn, so what is proposed never depends on
        a draw that was thrown away, and any such rule leaves the law of the output as it is. 0
        always drafts K.
    """

    follows_the_request = False
    stop_below = 0.0

    @abc.abstractmethod
    def start(self, batch: Batch, capacity: int) -> None:
        """Take up a new batch."""

    @abc.abstractmethod
    def logits(self, batch: Batch, drafts: Tensor, step: int) -> Tensor:
        """Logits [B, V] of the token after the text and its ``step`` drafts [B, step]."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row, and remember their laws."""
        steps = int(count.max())
        drafts = torch.empty(len(batch), 0, dtype=torch.int64, device=batch.device)
        laws: list[Tensor] = []
        coins = batch.streams.uniform(steps, used=to_device(count, batch.device))
        for step in range(steps):
            logits = self.logits(batch, drafts, step)
            if self.stop_below:
                sure = logits.float().softmax(-1).amax(-1) >= self.stop_below
                count = np.where(sure.cpu().numpy(), count, np.minimum(count, step))
                if not (count > step).any():
                    break
            token, q = self._draw(logits, batch, drafts, coins[:, step])
            drafts = torch.cat([drafts, token.unsqueeze(1)], 1)
            laws += [q] if q is not None else []
        return Proposal(drafts, count, torch.stack(laws, 1) if laws else None)

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

    @abc.abstractmethod
    def observe(self, accepted: Ints) -> None:
        """Learn how many tokens [B] of the last proposal were accepted."""

    @abc.abstractmethod
    def select(self, rows: Tensor) -> None:
        """Keep only the given rows of the batch."""
