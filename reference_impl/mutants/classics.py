"""The classic faults of speculative decoding: the reference engine with one step overridden."""

from __future__ import annotations

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant


@mutant(FaultClass.CACHE, "greedy.identity", "distribution.evidence")
class NoRollback(SpeculativeEngine):
    """Rejected tokens stay in the cache of the target."""

    def capacity(self, batch: Batch) -> int:
        return super().capacity(batch) * (int(batch.draft_tokens.max()) + 1)

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        return fed
