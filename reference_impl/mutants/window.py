"""An attention window that is right for single tokens and wrong for a block of them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.recurrent import cached_model


class BlockWindowModel(CachedModel):
    """Blocks that are verified have a mask of their own."""

    mask: Callable[[Tensor, Tensor, int], Tensor]

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        self._single = keep > 0 or ids.shape[1] == 1
        return super().forward(ids, start, keep)

    def within_window(self, slot: Tensor, position: Tensor) -> Tensor:
        if self._single:
            return super().within_window(slot, position)
        return self.mask(slot, position, self.window)


class _OtherMask(SpeculativeEngine):
    def mask(self, slot: Tensor, position: Tensor, window: int) -> Tensor:
        """``CachedModel.within_window`` for a block."""
        return slot > position - window

    def cache(self, capacity: int) -> CachedModel:
        model = cached_model(self.target, capacity, self.vocab, keys=BlockWindowModel)
        model.mask = self.mask  # type: ignore[attr-defined]
        return model


@mutant(FaultClass.CACHE, "greedy.window", id="F17", source="ml-explore/mlx-lm#1914")
class WindowUntrimmed(_OtherMask):
    """The window is trimmed for one new token, and a block of K + 1 sees K tokens too many."""

    def mask(self, slot: Tensor, position: Tensor, window: int) -> Tensor:
        return super().mask(slot, position, window + position.shape[1] - 1)


@mutant(
    FaultClass.CACHE,
    "greedy.window",
    id="F18",
    source="huggingface/transformers#48280 (regression of PR 47447)",
)
class WindowMisaligned(_OtherMask):
    """A block's mask has the columns of the window, its keys are all: the oldest are seen."""

    def mask(self, slot: Tensor, position: Tensor, window: int) -> Tensor:
        beyond = len(slot) - (window - 1 + position.shape[1])
        return super().mask(slot, position, window).roll(-max(0, beyond), -1)


@mutant(FaultClass.CACHE, "greedy.window", subtle={"excess": 1})
class WindowForgotten(_OtherMask):
    """A block sees tokens that the window hides."""

    excess = 1 << 30

    def mask(self, slot: Tensor, position: Tensor, window: int) -> Tensor:
        return super().mask(slot, position, window + self.excess)


@mutant(FaultClass.CACHE, "greedy.window", subtle={"missing": 1})
class WindowTooNarrow(_OtherMask):
    """A block does not see all that is in the window."""

    missing = 3

    def mask(self, slot: Tensor, position: Tensor, window: int) -> Tensor:
        return super().mask(slot, position, window - self.missing)
