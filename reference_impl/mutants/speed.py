"""Faults that cost the speed and not the output."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from harness.contract import Completion, Round
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal


@mutant(
    FaultClass.SPEED,
    "speed_evidence.target_calls",
    id="F73",
    source="ml-explore/mlx-lm#1297",
    needs=("rounds",),
)
class SpeculationIgnored(SpeculativeEngine):
    """The request for speculation is dropped on the way: plain decoding, that reports K."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        return super().propose(batch, count * 0)

    def completion(self, batch: Batch, row: int) -> Completion:
        answer, request = super().completion(batch, row), batch.requests[row]
        left = range(len(answer.tokens) - 1, -1, -1)
        drafted = [min(n, request.draft_tokens) if request.speculate else 0 for n in left]
        metrics = answer.metrics and msgspec.structs.replace(answer.metrics, drafted=sum(drafted))
        rounds = [Round(n, 0) for n in drafted]
        return msgspec.structs.replace(answer, rounds=rounds, metrics=metrics)


@mutant(
    FaultClass.SPEED,
    "speed_evidence.target_tokens",
    id="F76",
    source="huggingface/transformers#32370, 32366",
    needs=("metrics",),
)
class PromptReadAgain(SpeculativeEngine):
    """The prompt is fed once more for every round."""

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        if batch.draft_tokens.any():
            target.prefill(batch.texts_but_last())
            batch.fed(batch.prompt_length - 1)
        return super().round(batch, target, cached)


@mutant(FaultClass.SPEED, "speed_evidence.target_calls", needs=("rounds",))
class RejectsAll(SpeculativeEngine):
    """No draft is ever accepted: every round gives one token, the target's own."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        return torch.zeros_like(count)

    def q_rejected(self, proposal: Proposal, accepted: Tensor, count: Tensor) -> Tensor:
        return super().q_rejected(proposal, accepted, count) * 0
