"""Faults of what a decoder counts and times of itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.contract import Completion, Metrics, Request
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Emitted


class _Metrics(SpeculativeEngine):
    """Reports other metrics of speculative answers."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        if answer.metrics is None or not batch.requests[row].speculate:
            return answer
        return msgspec.structs.replace(answer, metrics=self.told(batch, row, answer.metrics))

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        raise NotImplementedError


@mutant(
    FaultClass.METRICS,
    "metrics.identities",
    id="F70",
    source="vllm-project/vllm#9565",
    needs=("metrics",),
)
class RateOfAllMatches(_Metrics):
    """The acceptance rate counts matches behind the first rejection as well."""

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        self._matches = np.zeros(len(requests), dtype=np.int64)
        return super().rounds(requests)

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        drafted = torch.arange(p.shape[1], device=self.device) < count.unsqueeze(1)
        self._last = (self.accept(p, q, u) & drafted).sum(1).cpu().numpy()
        return super().accepted(p, q, u, count)

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        self._matches[batch.index] += self._last * batch.active
        return super().cut(batch, emitted, count)

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        rate = int(self._matches[batch.index[row]]) / (right.drafted or 1)
        return msgspec.structs.replace(right, acceptance_rate=rate)


@mutant(
    FaultClass.METRICS,
    "metrics.identities",
    id="F71",
    source="vllm-project/vllm#35471",
    needs=("metrics",),
)
class ChunksAsTokens(_Metrics):
    """Tokens are counted by the chunks that they came in."""

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        chunks = right.target_calls or 0
        rate = chunks / (right.seconds or 1.0)
        return msgspec.structs.replace(right, tokens=chunks, tokens_per_second=rate)


@mutant(
    FaultClass.METRICS,
    "metrics.clock",
    id="F72",
    source="Pushkinist/rMLX#480",
    needs=("metrics", "plain"),
)
class PlainClockStartsLate(SpeculativeEngine):
    """The plain arm's seconds begin with its first token, the speculative arm's with the prompt."""

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        if not batch.draft_tokens.any() and not any(output.rounds for output in batch.outputs):
            batch.clock.restart()
        return super().commit(batch, cached, emitted)


@mutant(FaultClass.METRICS, "metrics.clock", needs=("metrics",))
class ClockStartsLate(SpeculativeEngine):
    """The seconds of a speculative answer begin behind its prompt."""

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        if batch.draft_tokens.any() and not any(output.rounds for output in batch.outputs):
            batch.clock.restart()
        return super().round(batch, target, cached)


@mutant(FaultClass.METRICS, "metrics.identities", "metrics.wrong_drafts", needs=("metrics",))
class BonusCountsAsAccepted(_Metrics):
    """The token of the target's own in every round counts as an accepted draft."""

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        drafted, accepted = right.drafted or 0, (right.accepted or 0) + (right.target_calls or 0)
        rate = accepted / drafted if drafted else 0.0
        return msgspec.structs.replace(right, accepted=accepted, acceptance_rate=rate)


@mutant(FaultClass.METRICS, "metrics.identities", "metrics.right_drafts", needs=("metrics",))
class RateOfTheOutput(_Metrics):
    """Accepted drafts are divided by all tokens of the output, not by the drafted ones."""

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        rate = (right.accepted or 0) / max(1, right.tokens or 0)
        return msgspec.structs.replace(right, acceptance_rate=rate)
