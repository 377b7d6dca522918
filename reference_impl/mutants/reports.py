"""Faults of what is said about an output: log probabilities, streams, metrics, and no speedup."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.contract import Completion, Metrics, Request, Round
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal

# --- log probabilities --------------------------------------------------------------------------


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

    def commit(
        self,
        batch: Batch,
        proposal: Proposal,
        cached: Ints,
        accepted: Tensor,
        emitted: Tensor,
        logprobs: Tensor | None,
    ) -> Ints:
        if logprobs is not None:
            column = torch.arange(logprobs.shape[1], device=self.device)
            drafts = column < accepted.unsqueeze(1)
            logprobs = torch.where(drafts, self.scale * logprobs, logprobs)
        return super().commit(batch, proposal, cached, accepted, emitted, logprobs)


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

    def commit(
        self,
        batch: Batch,
        proposal: Proposal,
        cached: Ints,
        accepted: Tensor,
        emitted: Tensor,
        logprobs: Tensor | None,
    ) -> Ints:
        if logprobs is not None and proposal.q is not None and not batch.parameters.greedy:
            drafts = torch.arange(logprobs.shape[1] - 1, device=self.device)
            own = self.q_of_drafts(proposal).log()
            mixed = torch.where(drafts < accepted.unsqueeze(1), own, logprobs[:, :-1])
            logprobs = torch.cat([mixed, logprobs[:, -1:]], 1)
        return super().commit(batch, proposal, cached, accepted, emitted, logprobs)


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


# --- streams ------------------------------------------------------------------------------------


@mutant(
    FaultClass.STREAM,
    "streaming.every_id",
    id="F67",
    source="vllm-project/vllm#43055, 42781, 43221",
    needs=("stream",),
)
class MarkerCutsPiece(SpeculativeEngine):
    """Of a piece that holds a certain id only what comes after it is sent."""

    def stream(self, request: Request) -> Iterator[list[int]]:
        marker = self.vocab // 2
        for piece in super().stream(request):
            yield piece[piece.index(marker) + 1 :] if marker in piece[1:] else piece


@mutant(
    FaultClass.STREAM,
    "streaming.pieces",
    id="F68",
    source="osaurus-ai/vmlx-swift#148",
    needs=("stream",),
    subtle={"held": 1},
)
class HeldBackForever(SpeculativeEngine):
    """The last tokens of a stream are held back, and never sent.

    Attributes
    ----------
    held : int
        How many.
    """

    held = 6

    def stream(self, request: Request) -> Iterator[list[int]]:
        tokens: list[int] = []
        for piece in super().stream(request):
            tokens += piece
            yield tokens[: -self.held]
            tokens = tokens[-self.held :]


@mutant(FaultClass.STREAM, "streaming.pieces", needs=("stream",))
class RepeatsAtBorder(SpeculativeEngine):
    """The token before a piece is sent with it again, where the block before was accepted whole."""

    def stream(self, request: Request) -> Iterator[list[int]]:
        before: list[int] = []
        for piece in super().stream(request):
            yield before[-1:] + piece if len(before) > request.draft_tokens else piece
            before = piece


@mutant(FaultClass.STREAM, "streaming.pieces", needs=("stream",))
class StreamsWholeBlocks(SpeculativeEngine):
    """The last block is sent whole, also where EOS, stop sequence or length cut it."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        kept = super().cut(batch, emitted, count)
        self._behind = emitted[0, kept[0] : count[0]].tolist()
        return kept

    def stream(self, request: Request) -> Iterator[list[int]]:
        for piece in super().stream(request):
            yield piece + self._behind


@mutant(FaultClass.STREAM, "streaming.cancel", needs=("stream",))
class CancelledCacheIsReused(SpeculativeEngine):
    """After a stream was closed the next request finds its own prompt cached, which it is not."""

    _cancelled: CachedModel | None = None

    def stream(self, request: Request) -> Iterator[list[int]]:
        try:
            yield from super().stream(request)
        except GeneratorExit:
            self._cancelled = self._latest
            raise

    def cache(self, capacity: int) -> CachedModel:
        self._latest = super().cache(capacity)
        return self._latest

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        if self._cancelled is None or len(batch) > 1:
            return super().prefill(batch, target)
        self._cancelled = None
        target.prefill(torch.zeros_like(batch.texts_but_last()))
        return batch.prompt_length - 1


# --- metrics ------------------------------------------------------------------------------------


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

    def commit(
        self,
        batch: Batch,
        proposal: Proposal,
        cached: Ints,
        accepted: Tensor,
        emitted: Tensor,
        logprobs: Tensor | None,
    ) -> Ints:
        if not batch.draft_tokens.any() and not any(output.rounds for output in batch.outputs):
            batch.started = time.perf_counter()
        return super().commit(batch, proposal, cached, accepted, emitted, logprobs)


@mutant(FaultClass.METRICS, "metrics.clock", needs=("metrics",))
class ClockStartsLate(SpeculativeEngine):
    """The seconds of a speculative answer begin behind its prompt."""

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        if batch.draft_tokens.any() and not any(output.rounds for output in batch.outputs):
            batch.started = time.perf_counter()
        return super().round(batch, target, cached)


@mutant(FaultClass.METRICS, "metrics.identities", "metrics.wrong_drafts", needs=("metrics",))
class BonusCountsAsAccepted(_Metrics):
    """The token of the target's own in every round counts as an accepted draft."""

    def told(self, batch: Batch, row: int, right: Metrics) -> Metrics:
        drafted, accepted = right.drafted or 0, (right.accepted or 0) + (right.target_calls or 0)
        rate = accepted / drafted if drafted else 0.0
        return msgspec.structs.replace(right, accepted=accepted, acceptance_rate=rate)


# --- no speedup ---------------------------------------------------------------------------------


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
    "metrics.identities",
    id="F76",
    source="huggingface/transformers#32370, 32366",
    needs=("metrics",),
    subtle={"every": 4},
)
class PromptReadAgain(SpeculativeEngine):
    """The prompt is fed once more for every round.

    Attributes
    ----------
    every : int
        Rounds from one time to the next.
    """

    every = 1

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        self._count = itertools.count(1)
        return super().rounds(requests)

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        if batch.draft_tokens.any() and next(self._count) % self.every == 0:
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
