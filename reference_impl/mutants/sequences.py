"""Faults that only a sequence of calls, or a strange mix of parameters, brings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from harness.contract import Completion, Request
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal
from reference_impl.sampling import History

REQUESTS, SEQUENCES = "properties.requests", "properties.sequences"


@mutant(FaultClass.STREAM, SEQUENCES, needs=("stream",))
class ClosedStreamNotCleared(SpeculativeEngine):
    """After a stream that was closed early, the next request's prompt is taken as fed already."""

    _open = False

    def stream(self, request: Request) -> Iterator[list[int]]:
        for piece in super().stream(request):
            self._open = True
            yield piece
        self._open = False

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        if not (self._open and batch.draft_tokens.any()):
            return super().prefill(batch, target)
        self._open = False
        return batch.prompt_length - 1


@mutant(FaultClass.CACHE, SEQUENCES, needs=("logprobs",))
class LogprobsSpoilTheNext(SpeculativeEngine):
    """The logits that log probabilities were read from are judged by in the next request."""

    _kept: Tensor | None = None

    def process(self, logits: Tensor, batch: Batch, proposal: Proposal) -> Tensor:
        processed = super().process(logits, batch, proposal)
        if any(request.logprobs for request in batch.requests):
            self._kept = processed[0, 0].clone()
        elif self._kept is not None and proposal.tokens.shape[1]:
            processed[:, 0], self._kept = self._kept, None
        return processed


@mutant(FaultClass.CACHE, SEQUENCES, REQUESTS)
class EverySeventhRequest(SpeculativeEngine):
    """Every seventh request is judged by the rows of the tokens after."""

    _seen = 0

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        before, self._seen = self._seen, self._seen + len(requests)
        self._wrong = before // 7 < self._seen // 7
        yield from super().rounds(requests)

    def rows(self, logits: Tensor) -> Tensor:
        return torch.cat([logits[:, 1:], logits[:, -1:]], 1) if self._wrong else logits


@mutant(FaultClass.CACHE, SEQUENCES)
class AnswersByPrompt(SpeculativeEngine):
    """An answer is remembered by its prompt, whatever else was asked for."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        answers = self.__dict__.setdefault("_answers", {})
        if len(requests) > 1 or not requests[0].speculate:
            return super().generate(requests)
        prompt = requests[0].prompt
        if prompt not in answers:
            answers[prompt] = super().generate(requests)
        return [replace(answer) for answer in answers[prompt]]


class _Misheard(SpeculativeEngine):
    """Decodes requests that speculate as if something else had been asked for."""

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        return super().rounds([self.heard(r) if r.speculate else r for r in requests])

    def heard(self, request: Request) -> Request:
        """What is decoded instead."""
        raise NotImplementedError


@mutant(FaultClass.END, REQUESTS, needs=("stop", "min_new_tokens"))
class StopForgottenForMinimum(_Misheard):
    """With min_new_tokens, stop sequences are not looked for at all."""

    def heard(self, request: Request) -> Request:
        return replace(request, stop=()) if request.sampling.min_new_tokens else request


@mutant(FaultClass.PARAMETERS, REQUESTS, needs=("greedy", "top_p"))
class GreedyUnderFilter(_Misheard):
    """At temperature 0 with a top_p the token is drawn under it, as if at temperature 1."""

    def heard(self, request: Request) -> Request:
        if request.sampling.greedy and request.sampling.top_p < 1:
            return replace(request, sampling=replace(request.sampling, temperature=1.0))
        return request


@mutant(FaultClass.PROCESSORS, REQUESTS, needs=("penalties", "grammar"))
class PenaltyStandsInGrammar(SpeculativeEngine):
    """Under a grammar, penalties count the text before the block in all of its rows."""

    def histories(self, history: History, proposal: Proposal) -> History:
        after, width = super().histories(history, proposal), proposal.tokens.shape[1] + 1
        if history.automata is None:
            return after
        before = history.rows(torch.arange(len(history.seen)).repeat_interleave(width))
        return History(before.seen, before.counts, after.automata)
