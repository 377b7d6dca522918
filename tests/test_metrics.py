"""Metrics that are not what they say, and clocks that start late."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from decoders import ALL, Wrong, answered

from harness.adapters import load_decoder
from harness.checks import clock, metrics
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Metrics, Request, Round
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(1, 4), prompts=1, new_tokens=12, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[tuple[Check, str]] = [
    (metrics.identities, "tiny"),
    (metrics.wrong_drafts, "tiny-hostile"),
    (metrics.right_drafts, "tiny-self"),
    (clock.clock, "tiny"),
]
RIGHT = Metrics(
    tokens=7,
    target_calls=3,
    target_tokens=5 + 3 + 8,
    drafted=8,
    accepted=4,
    acceptance_rate=0.5,
    seconds=2.0,
    tokens_per_second=3.5,
)
ROUNDS = [Round(4, 3), Round(3, 1), Round(1, 0)]


def subject(decoder: Decoder | str, pair: str = "tiny") -> Subject:
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, load(pair))
    return Subject(decoder, load(pair), "no:name")


def reporting(pair: str = "tiny", **fields: Any) -> Wrong:
    def change(completion: Completion) -> Completion:
        assert completion.metrics is not None
        changed = msgspec.structs.replace(completion.metrics, **fields)
        return msgspec.structs.replace(completion, metrics=changed)

    return Wrong(load(pair), answered(change))


def problem(rounds: list[Round] | None = ROUNDS, **fields: Any) -> str:
    request = Request(prompt=(1,) * 6, max_new_tokens=7)
    changed = msgspec.structs.replace(RIGHT, **fields)
    completion = Completion(tokens=[0] * 7, finish_reason="length", rounds=rounds, metrics=changed)
    return metrics.wrong_metrics(request, completion)


@pytest.mark.parametrize(("check", "pair"), CHECKS)
def test_the_reference_passes(check: Check, pair: str) -> None:
    verdict = check(subject("reference", pair), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize(("check", "pair"), CHECKS)
def test_what_is_not_declared_is_unsupported(check: Check, pair: str) -> None:
    assert check(subject("reference-page", pair), BUDGET).status is Status.UNSUPPORTED


def test_right_metrics_have_no_problem() -> None:
    assert problem() == problem(rounds=None) == ""
    nothing = dict.fromkeys(Metrics.__struct_fields__)
    assert problem(**nothing) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tokens": 3}, "tokens is 3, the answer has 7"),
        ({"tokens": "7"}, "tokens is '7'"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"drafted": 12}, "drafted is 12, the rounds sum to 8"),
        ({"accepted": 5}, "accepted is 5, the rounds sum to 4"),
        ({"target_calls": 4}, "target_calls is 4, the rounds are 3"),
        ({"acceptance_rate": 0.6}, "acceptance_rate is 0.6, accepted / drafted is 0.5"),
        ({"tokens_per_second": 1.5}, "tokens_per_second is 1.5, tokens / seconds is 3.5"),
    ],
)
def test_an_identity_that_does_not_hold(fields: dict[str, Any], words: str) -> None:
    assert problem(**fields) == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target_calls": 8}, "each gives a token"),
        ({"accepted": 9, "acceptance_rate": 9 / 8}, "accepted is 9, drafted are 8"),
        ({"accepted": 2, "acceptance_rate": 0.25}, "5 accepted tokens and target calls give 7"),
        ({"acceptance_rate": 0.6}, "accepted / drafted is"),
    ],
)
def test_an_identity_without_rounds(fields: dict[str, Any], words: str) -> None:
    assert words in problem(rounds=None, **fields)


def test_single_precision_is_no_fault() -> None:
    assert problem(rounds=[Round(3, 1)] * 2, drafted=6, accepted=2) != ""
    third = {"drafted": 9, "accepted": 3, "target_calls": 4, "acceptance_rate": 0.33333334}
    assert problem(rounds=None, **third) == ""


def test_metrics_that_are_declared_and_missing() -> None:
    silent = Wrong(load("tiny"), answered(lambda c: msgspec.structs.replace(c, metrics=None)))
    verdict = metrics.identities(subject(silent), BUDGET)
    assert (verdict.status, "none are reported" in verdict.message) == (Status.FAIL, True)
    assert clock.clock(subject(reporting(seconds=None)), BUDGET).passed  # of the plain arm's


def test_what_is_never_given_is_not_claimed() -> None:
    verdict = metrics.identities(subject(reporting(target_tokens=None)), BUDGET)
    assert verdict.passed
    only = Wrong(load("tiny"), answered(lambda c: c))
    only.capabilities = ALL - {"plain"}
    change = answered(lambda c: msgspec.structs.replace(c, metrics=Metrics(tokens=len(c.tokens))))
    only._generate = change
    verdict = metrics.identities(subject(only), BUDGET)
    assert verdict.passed
    assert "never given: target_calls" in verdict.ruled_out


@pytest.mark.parametrize(
    ("check", "pair", "fields"),
    [
        (metrics.wrong_drafts, "tiny-hostile", {"acceptance_rate": 0.25}),
        (metrics.wrong_drafts, "tiny-hostile", {"accepted": 1, "acceptance_rate": None}),
        (metrics.right_drafts, "tiny-self", {"acceptance_rate": 0.0}),
        (metrics.right_drafts, "tiny-self", {"accepted": 0, "acceptance_rate": None}),
    ],
)
def test_a_rate_that_the_drafts_do_not_have(
    check: Check, pair: str, fields: dict[str, Any]
) -> None:
    verdict = check(subject(reporting(pair, **fields), pair), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.METRICS)


def test_drafts_that_are_neither_always_right_nor_always_wrong_say_nothing() -> None:
    verdict = metrics.right_drafts(subject("reference", "tiny-bad"), BUDGET)
    assert (verdict.status, "use --pair tiny-self" in verdict.message) == (Status.UNSUPPORTED, True)


class Clocked:
    """A decoder in simulated time: a prompt token takes 10 ms, a new one 5, the way there 3.

    ``missing`` seconds of each kind are not reported.
    """

    def __init__(self, share: float = 0.0, plain_share: float = 0.0, times: float = 1.0) -> None:
        self.capabilities, self.now = ALL, 0.0
        self.shares = {True: share, False: plain_share}
        self.times = times

    def generate(self, requests: list[Request]) -> list[Completion]:
        (request,) = requests
        prompt = 0.01 * len(request.prompt)
        self.now += 0.003 + prompt + 0.005
        seconds = self.times * (prompt * (1 - self.shares[request.speculate]) + 0.005)
        return [Completion(tokens=[0], finish_reason="length", metrics=Metrics(seconds=seconds))]


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        (Clocked(), ""),
        (Clocked(share=0.3), ""),
        (Clocked(share=1.0), "are missing from those that the speculative arm reports"),
        (Clocked(plain_share=1.0), "are missing from those that the plain arm reports"),
        (Clocked(times=1000.0), "seconds are reported of"),
    ],
)
def test_a_clock_that_is_wrong(
    decoder: Clocked, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "perf_counter", lambda: decoder.now)
    verdict = clock.clock(subject(decoder), BUDGET)
    if not words:
        assert verdict.passed, str(verdict)
        assert "begins behind the prompt (speculative and plain arm)" in verdict.ruled_out
    else:
        assert (verdict.status, words in verdict.message) == (Status.FAIL, True), str(verdict)
        assert verdict.fault_class is FaultClass.METRICS


def test_where_the_prompt_does_not_stand_out_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = Clocked(share=1.0)
    generate = decoder.generate

    def far_away(requests: list[Request]) -> list[Completion]:
        decoder.now += 10.0
        return generate(requests)

    monkeypatch.setattr(decoder, "generate", far_away)
    monkeypatch.setattr(clock, "perf_counter", lambda: decoder.now)
    verdict = clock.clock(subject(decoder), BUDGET)
    assert (verdict.status, verdict.ruled_out) == (Status.PASS, "more seconds than passed")
