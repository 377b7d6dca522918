"""The engine under a scheduler that takes memory away: rows lose their cache and come back.

A row that is preempted keeps its committed tokens and nothing else. To resume it, all of them but
the last are fed anew, to the target and to the draft; the round goes on as if nothing had been.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.transfers import to_device


class PreemptingEngine(SpeculativeEngine):
    """Before every third round, one row in turn is preempted and resumed.

    Attributes
    ----------
    every : int
        Rounds from one preemption to the next.
    """

    every = 3

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.clock = 0

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        """Run one round, after a preemption where it is time for one."""
        self.clock += 1
        preemptions, left = divmod(self.clock, self.every)
        row = preemptions % len(batch)
        if left == 0 and batch.active[row]:
            cached = self.resume(batch, target, cached, row)
        return super().round(batch, target, cached)

    def resume(self, batch: Batch, target: CachedModel, cached: Ints, row: int) -> Ints:
        """Feed a row without a cache all its tokens but the last; returns the cached lengths."""
        length = self.resumed_length(batch, row)
        text = to_device(batch.tokens[row : row + 1, :length], self.device)
        alone = self.cache(capacity := self.capacity(batch))
        alone.prefill(text)
        target.put([row], alone.take(0, capacity), len(batch))  # its empty slots as well
        batch.fed(np.where(np.arange(len(batch)) == row, length, 0))
        if self.drafter and batch.draft_tokens.any():
            self.drafter.start(batch, capacity)  # its rows are lost together
        return np.where(np.arange(len(batch)) == row, batch.length[row] - 1, cached)

    def resumed_length(self, batch: Batch, row: int) -> int:
        """Tokens to feed to a row that comes back."""
        return int(batch.length[row]) - 1
