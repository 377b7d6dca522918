"""Faults of log probabilities."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from harness.contract import Completion
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Emitted


@mutant(
    FaultClass.LOGPROBS,
    "logprobs.values",
    "logprobs.arms",
    "logprobs.mass",
    id="F65",
    source="ggml-org/llama.cpp#27972",
    needs=("logprobs",),
    subtle={"scale": 0.99},
    subtle_killed_by=("logprobs.values", "logprobs.arms"),
)
class ZeroLogprobs(SpeculativeEngine):
    """Accepted tokens have the log probability 0.

    Attributes
    ----------
    scale : float
        What is left of the true one.
    """

    scale = 0.0

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        if (logprobs := emitted.logprobs) is not None:
            column = torch.arange(logprobs.shape[1], device=self.device)
            drafts = column < emitted.accepted.unsqueeze(1)
            scaled = torch.where(drafts, self.scale * logprobs, logprobs)
            emitted = replace(emitted, logprobs=scaled)
        return super().commit(batch, cached, emitted)


@mutant(
    FaultClass.LOGPROBS,
    "logprobs.values",
    "logprobs.arms",
    id="F66",
    source="sgl-project/sglang#14046, 17349",
    needs=("logprobs",),
)
class FirstLogprobOnly(SpeculativeEngine):
    """Only the first token has a log probability."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        if not batch.requests[row].speculate:
            return answer
        return msgspec.structs.replace(answer, logprobs=answer.logprobs and answer.logprobs[:1])


@mutant(FaultClass.LOGPROBS, "logprobs.values", needs=("logprobs", "sampling"))
class LogprobsOfDraft(SpeculativeEngine):
    """An accepted draft is reported with its log probability under q."""

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        proposal, logprobs = emitted.proposal, emitted.logprobs
        if logprobs is not None and proposal.q is not None and not batch.parameters.greedy:
            drafts = torch.arange(logprobs.shape[1] - 1, device=self.device)
            own = self.q_of_drafts(proposal).log()
            mixed = torch.where(drafts < emitted.accepted.unsqueeze(1), own, logprobs[:, :-1])
            mixed = torch.cat([mixed, logprobs[:, -1:]], 1)
            emitted = replace(emitted, logprobs=mixed)
        return super().commit(batch, cached, emitted)


@mutant(FaultClass.LOGPROBS, "logprobs.values", needs=("logprobs", "sampling"))
class LogprobsUntempered(SpeculativeEngine):
    """Log probabilities of a block are those before temperature and filters."""

    def logprobs(self, processed: Tensor, batch: Batch, emitted: Tensor) -> Tensor | None:
        right = super().logprobs(processed, batch, emitted)
        if right is None or not batch.draft_tokens.any():
            return right
        return processed.log_softmax(-1).gather(2, emitted.unsqueeze(2)).squeeze(2)


@mutant(FaultClass.LOGPROBS, "logprobs.values", "logprobs.arms", needs=("logprobs",))
class LogprobsOfRowBefore(SpeculativeEngine):
    """Tokens of a block, but the first, are scored by the row before theirs."""

    def logprobs(self, processed: Tensor, batch: Batch, emitted: Tensor) -> Tensor | None:
        before = torch.cat([processed[:, :1], processed[:, :-1]], 1)
        return super().logprobs(before, batch, emitted)
