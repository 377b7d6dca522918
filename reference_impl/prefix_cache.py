"""The engine with a prefix cache: a text that was fed before is not fed again.

States of a token depend on the tokens before it alone. A request whose prompt begins as an
earlier text did may therefore take over the cached rows of what both have in common, and of
nothing more: the ids are compared one by one, up to the length that was committed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints, States
from reference_impl.engine import SpeculativeEngine
from reference_impl.transfers import to_device


@dataclass(frozen=True)
class Remembered:
    """A text and the target's states of all its tokens."""

    tokens: Ints
    states: States


class PrefixCachedEngine(SpeculativeEngine):
    """Remembers its last texts, and feeds only what a new prompt adds to the nearest of them.

    Attributes
    ----------
    entries : int
        Texts to remember.
    """

    entries = 4

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.memory: deque[Remembered] = deque(maxlen=self.entries)

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        """Copy what was fed before, feed the rest: every row as many tokens as the neediest."""
        wanted = batch.prompt_length - 1
        shared = self.recall(batch, target)
        missing = int((wanted - shared).max())
        if missing:
            start = np.maximum(wanted - missing, 0)  # at or before the end of what is shared
            ids = to_device(batch.tokens_from(start, missing), self.device)
            target.forward(ids, start, keep=1)
        batch.fed(np.minimum(wanted, missing))
        return wanted

    def recall(self, batch: Batch, target: CachedModel) -> Ints:
        """Copy the states that every row shares with a remembered text; how many they are, [B]."""
        shared = np.zeros((1 + len(self.memory), len(batch)), dtype=np.int64)
        for entry, text in enumerate(self.memory, 1):
            shared[entry] = self.shared(text, batch)
        best = shared.argmax(0)
        for entry, text in enumerate(self.memory, 1):
            if (rows := np.flatnonzero(best == entry)).size:
                target.put(rows.tolist(), text.states, len(batch))
        longest: Ints = shared.max(0)
        return longest

    def shared(self, text: Remembered, batch: Batch) -> Ints:
        """Length of the prefix [B] that a text and the prompts, without their last, have in common.

        That much, and no more of the text's states, belongs to the prompts as well.
        """
        n = min(len(text.tokens), batch.tokens.shape[1])
        same = batch.tokens[:, :n] == text.tokens[:n]
        same &= np.arange(n) < batch.prompt_length[:, None] - 1
        length: Ints = same.cumprod(1).sum(1)
        return length

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        """Run one round, and remember the rows that ended in it."""
        before = batch.active.copy()
        cached = super().round(batch, target, cached)
        for row in np.flatnonzero(before & ~batch.active)[-self.entries :]:
            self.remember(batch, target, int(row), int(cached[row]))
        return cached

    def remember(self, batch: Batch, target: CachedModel, row: int, length: int) -> None:
        """Keep the first ``length`` tokens of a row, all of them committed and fed."""
        tokens = batch.tokens[row, :length].copy()
        self.memory.append(Remembered(tokens, target.take(row, length)))
