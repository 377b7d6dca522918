"""Recurrent states that a round leaves wrong: a token that went in cannot be masked out."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import lookup, mutant
from reference_impl.recurrent import RecurrentModel, cached_model, states_of
from reference_impl.transfers import to_device


class RecallingModel(RecurrentModel):
    """Knows the states after the first and after the last token of the block before.

    Attributes
    ----------
    first, last : Tensor [B], int64, or None
        Their positions; None where no block was fed.
    """

    first: Tensor | None = None
    last: Tensor | None = None

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        logits = super().forward(ids, start, keep)
        began = to_device(start, self.device)
        self.first, self.last = (None, None) if keep else (began + 1, began + ids.shape[1])
        return logits

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        if self.first is not None and self.last is not None:
            self.first, self.last = self.first[rows], self.last[rows]


class UnrestoredModel(RecallingModel):
    """Goes on from the end of the block before, at most ``most`` tokens beyond what was kept."""

    most = 1 << 30

    def restore(self, position: Tensor) -> None:
        if self.last is not None:
            position = torch.minimum(self.last, position + self.most)
        super().restore(position)


@mutant(
    FaultClass.CACHE,
    "greedy.recurrent",
    id="F15",
    source="ml-explore/mlx-lm#1109 (first fault; issue 846)",
    subtle={"most": 1},
)
class StateNotRestored(SpeculativeEngine):
    """Rejected tokens stay in the recurrent state."""

    most = 1 << 30

    def cache(self, capacity: int) -> CachedModel:
        model = cached_model(self.target, capacity, self.vocab, states=UnrestoredModel)
        model.most = self.most  # type: ignore[attr-defined]
        return model


class HalfRestoredModel(RecallingModel):
    """Restores the convolutions, and goes on from the end of the block before with the rest."""

    def restore(self, position: Tensor) -> None:
        super().restore(position)
        if self.last is not None:
            row = torch.arange(len(position), device=self.device)
            pairs = list(zip(states_of(self._cache), self._saved, strict=True))
            for state, saved in pairs[1::2]:
                state.copy_(saved[row, self.last])


@mutant(FaultClass.CACHE, "greedy.recurrent")
class StateHalfRestored(SpeculativeEngine):
    """Rejected tokens are taken out of the convolutions, and not out of the recurrent state."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, states=HalfRestoredModel)


class FirstSlotModel(RecallingModel):
    """A single token goes on from the state after the first token of the block before."""

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        self._single = ids.shape[1] == 1
        return super().forward(ids, start, keep)

    def restore(self, position: Tensor) -> None:
        super().restore(position if self.first is None or not self._single else self.first)


@mutant(
    FaultClass.CACHE,
    "greedy.recurrent",
    id="F19",
    source="vllm-project/vllm#39273 (root cause PR 40738)",
    drafter=lookup,
)
class FirstSlotRead(SpeculativeEngine):
    """A round without drafts goes on from the state after the first token of the block before."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, states=FirstSlotModel)


class UncommittedModel(RecurrentModel):
    """A single token leaves no trace in the state, where there is speculation."""

    speculates = False

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        self._lost = self.speculates and ids.shape[1] == 1 and not keep
        return super().forward(ids, start, keep)

    def save(self, position: Tensor) -> None:
        if self._lost:
            self.restore(position - 1)
        super().save(position)


@mutant(
    FaultClass.CACHE,
    "greedy.recurrent",
    id="F20",
    source="vllm-project/vllm#56531",
    drafter=lookup,
)
class EmptyRoundUncommitted(SpeculativeEngine):
    """A round in which nobody drafted leaves the state as it was."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, states=UncommittedModel)

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        target.speculates = bool(batch.draft_tokens.any())  # type: ignore[attr-defined]
        return super().prefill(batch, target)
