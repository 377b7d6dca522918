"""Positions that are told wrong: in the right slots, but turned or embedded as if elsewhere."""

from __future__ import annotations

from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.recurrent import cached_model
from reference_impl.transfers import to_device


class DriftingModel(CachedModel):
    """Positions are off by what was rejected so far."""

    _shift: Tensor | int = 0  # [B]
    _end: Ints | None = None  # of the block before

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        if self._end is not None:
            self._shift = self.shift(to_device(self._end - start, self.device))
        logits = super().forward(ids, start, keep)
        self._end = None if keep else start + ids.shape[1]
        self._width = ids.shape[1]
        return logits

    def shift(self, rejected: Tensor) -> Tensor:
        """How much too high the next positions are, [B]."""
        return self._shift + rejected

    def position_ids(self, position: Tensor) -> Tensor:
        if isinstance(self._shift, int):
            return position
        return position + self._shift.unsqueeze(1)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self._end = None if self._end is None else self._end[rows.cpu().numpy()]
        self._shift = self._shift if isinstance(self._shift, int) else self._shift[rows]


class BonusTwiceModel(DriftingModel):
    """Positions are one too high in the round after a fully accepted block."""

    def shift(self, rejected: Tensor) -> Tensor:
        return ((rejected == 0) & (self._width > 1)).long()


class FromZeroModel(CachedModel):
    """Positions of a block begin at 0."""

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        self._verifies = not keep and ids.shape[1] > 1
        return super().forward(ids, start, keep)

    def position_ids(self, position: Tensor) -> Tensor:
        return position - position[:, :1] if self._verifies else position


@mutant(
    FaultClass.POSITIONS,
    "greedy.identity",
    "greedy.positions",
    "distribution.evidence",
    id="F60",
    source="huggingface/transformers#30042 (and 30413)",
)
class PositionsKeepRejected(SpeculativeEngine):
    """Positions go on as if no token had been rejected."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, keys=DriftingModel)


@mutant(FaultClass.POSITIONS, "greedy.identity", "greedy.positions")
class BonusPositionTwice(SpeculativeEngine):
    """Positions are one too high in the round after a fully accepted block."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, keys=BonusTwiceModel)


@mutant(FaultClass.POSITIONS, "greedy.identity", "greedy.positions", "distribution.evidence")
class PositionsFromZero(SpeculativeEngine):
    """A block is verified at positions that begin at 0."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, keys=FromZeroModel)
