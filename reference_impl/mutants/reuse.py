"""A prefix cache that takes over what does not belong to the new prompt."""

from __future__ import annotations

import numpy as np

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.mutants.registry import mutant
from reference_impl.prefix_cache import PrefixCachedEngine, Remembered

SHARED, TURN = "cache.shared_prefix", "cache.second_turn"


@mutant(
    FaultClass.CACHE,
    TURN,
    id="F79",
    source="sgl-project/sglang#35694 (ggml-org/llama.cpp#28049)",
)
class OvershootRemembered(PrefixCachedEngine):
    """What was verified behind the end of an answer is reused by the turn that follows it."""

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        self._fed = fed
        return super().rollback(fed, committed)

    def remember(self, batch: Batch, target: CachedModel, row: int, length: int) -> None:
        super().remember(batch, target, row, length)
        states = target.take(row, int(self._fed[row]))
        self.memory.append(Remembered(self.memory.pop().tokens, states))

    def shared(self, text: Remembered, batch: Batch) -> Ints:
        shared = super().shared(text, batch)
        behind = np.minimum(text.states[0][0].shape[1], batch.prompt_length - 1)
        return np.where(shared == len(text.tokens), behind, shared)


@mutant(FaultClass.CACHE, SHARED)
class PrefixByLength(PrefixCachedEngine):
    """An earlier text that is long enough is reused, whatever its ids are."""

    def shared(self, text: Remembered, batch: Batch) -> Ints:
        length: Ints = np.minimum(len(text.tokens), batch.prompt_length - 1)
        return length


@mutant(FaultClass.CACHE, SHARED, TURN)
class PrefixOneTooLong(PrefixCachedEngine):
    """The state of the first id that differs is taken over as well."""

    def shared(self, text: Remembered, batch: Batch) -> Ints:
        most = np.minimum(len(text.tokens), batch.prompt_length - 1)
        length: Ints = np.minimum(super().shared(text, batch) + 1, most)
        return length


@mutant(FaultClass.CACHE, SHARED)
class PrefixButForOne(PrefixCachedEngine):
    """A prefix that differs in a single id counts as the same."""

    def shared(self, text: Remembered, batch: Batch) -> Ints:
        n = min(len(text.tokens), batch.tokens.shape[1])
        known = (batch.tokens[:, :n] != text.tokens[:n]).cumsum(1) <= 1
        length: Ints = np.minimum(known.sum(1), batch.prompt_length - 1)
        return length
