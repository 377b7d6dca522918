"""Rows that are taken out of step and come back, and workers that do not agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.preemption import PreemptingEngine
from reference_impl.proposal import Emitted, Proposal

FAMILY, LONG = "distribution.family", ("cache.none_rejected", "cache.alternating")


@mutant(FaultClass.BATCH, FAMILY, id="F56", source="vllm-project/vllm#46899 / 40768 / 43434")
class StaleDrafts(SpeculativeEngine):
    """A row that sat out a step is verified with its earlier drafts, as if they were new."""

    _late: Proposal | None = None

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        late, self._late = self._late, None
        if late is None or len(late.count) != len(batch):
            self._late = super().propose(batch, count)
            return self._late
        k = min(int(count.max()), late.tokens.shape[1])
        q = late.q[:, :k] if late.q is not None else None
        return Proposal(late.tokens[:, :k], np.minimum(count, late.count), q)


@mutant(FaultClass.BATCH, *LONG, id="F57", source="vllm-project/vllm#48245 / 49620")
class LateResult(PreemptingEngine):
    """A row that was preempted is moved on by the round before, though all of it was fed anew."""

    def capacity(self, batch: Batch) -> int:
        return super().capacity(batch) + int(batch.draft_tokens.max()) + 1

    def resume(self, batch: Batch, target: CachedModel, cached: Ints, row: int) -> Ints:
        cached = super().resume(batch, target, cached, row)
        if batch.draft_tokens[row]:
            cached[row] += sum(late.accepted + 1 for late in batch.outputs[row].rounds[-1:])
        return cached


@mutant(FaultClass.CACHE, *LONG)
class ResumedOneShort(PreemptingEngine):
    """The last but one of its tokens is not fed to a row that comes back."""

    def resumed_length(self, batch: Batch, row: int) -> int:
        short = 1 if batch.draft_tokens[row] else 0
        return max(0, super().resumed_length(batch, row) - short)


@mutant(FaultClass.CACHE, *LONG)
class ResumedFromPrompt(PreemptingEngine):
    """A row that comes back is fed its prompt, and none of its output."""

    def resumed_length(self, batch: Batch, row: int) -> int:
        length = super().resumed_length(batch, row)
        return min(length, int(batch.prompt_length[row])) if batch.draft_tokens[row] else length


@mutant(FaultClass.RANDOMNESS, FAMILY, id="F51", source="vllm-project/vllm#17498 (PR 17509)")
class OwnCoins(SpeculativeEngine):
    """Two workers draw their own coins: one says how many tokens to keep, the other one which."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        self._count = super().accepted(p, q, torch.rand_like(u), count)
        return super().accepted(p, q, u, count)

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        return super().commit(batch, cached, replace(emitted, accepted=self._count))
