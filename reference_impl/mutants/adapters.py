"""Faults of what stands between a decoder and the contract: the reference, badly wired."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from harness.adapters.reference import EngineDecoder
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.mutants.registry import draft_model, wrong_decoder


class Wired(EngineDecoder):
    """The reference, unchanged."""

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair, draft_model(pair))


@wrong_decoder(FaultClass.CONTRACT, "smoke.wired")
class WrongModel(Wired):
    """The draft decodes in place of the target, with speculation and without."""

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(dataclasses.replace(pair, target=pair.draft, draft=pair.target))


@wrong_decoder(FaultClass.CONTRACT, "robustness.bad_input")
class AnswersNonsense(Wired):
    """A request that makes no sense is answered."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        try:
            return super().generate(requests)
        except ValueError:
            return [Completion(tokens=[0], finish_reason="length") for _ in requests]


@wrong_decoder(FaultClass.CONTRACT, "robustness.bad_input")
class CrashesOnNonsense(Wired):
    """A request that makes no sense is found out too late, by a crash."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        try:
            return super().generate(requests)
        except ValueError:
            raise IndexError("list index out of range") from None


@wrong_decoder(FaultClass.CONTRACT, "contract.form", "batching.rows")
class LosesTheLastRow(Wired):
    """A batch is answered by one completion too few."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = super().generate(requests)
        return completions[:-1] if len(completions) > 1 else completions


@wrong_decoder(FaultClass.CONTRACT, "contract.form", "batching.rows")
class SortsByLength(Wired):
    """Completions come sorted by their length instead of in the order of the requests."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return sorted(super().generate(requests), key=lambda answer: len(answer.tokens))


@wrong_decoder(FaultClass.CONTRACT, "smoke.wired")
class AnswersNothing(Wired):
    """Every completion is empty."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [msgspec.structs.replace(c, tokens=[]) for c in super().generate(requests)]


@wrong_decoder(FaultClass.CONTRACT, "smoke.wired")
class PadsWithMinusOne(Wired):
    """Answers are filled up to the length that was asked for and one more, with id -1."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [
            msgspec.structs.replace(c, tokens=[*c.tokens, -1]) for c in super().generate(requests)
        ]


@wrong_decoder(FaultClass.CONTRACT, "contract.form")
class LogprobsOfTheText(Wired):
    """Log probabilities come without that of the last token, which ended the output."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [
            msgspec.structs.replace(c, logprobs=c.logprobs and c.logprobs[:-1])
            for c in super().generate(requests)
        ]


@wrong_decoder(FaultClass.CONTRACT, "contract.requests")
class SpendsTheBias(Wired):
    """The mapping of a request's logit bias is used up while it is applied."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = super().generate(requests)
        for request in requests:
            request.sampling.logit_bias.clear()
        return completions


@wrong_decoder(FaultClass.CONTRACT, "contract.nothing")
class NeedsARequest(Wired):
    """An empty list of requests is taken for a single one."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate(requests or [Request(prompt=(0,), max_new_tokens=1)])
