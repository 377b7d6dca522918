"""Where output ends: every role of an end comes up, and a wrong end is named as one."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from decoders import ALL, Wrong, answered, asked, last_token, last_token_in_both_arms, longer

from harness.adapters import load_decoder
from harness.checks import stopping
from harness.checks.budget import PROFILES, Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Request, Round
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(3,), prompts=1, new_tokens=8, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[Check] = [
    stopping.eos,
    stopping.length,
    stopping.stop,
    stopping.priority,
    stopping.min_new_tokens,
    stopping.context,
]


def subject(decoder: Decoder | str, pair: str = "tiny") -> Subject:
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, load(pair))
    return Subject(decoder, load(pair), "no:name")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_reference_passes(check: Check) -> None:
    verdict = check(subject("reference"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize("decoder", ["reference", "reference-ngram"])
def test_an_end_comes_up_in_every_role(decoder: str) -> None:
    verdict = stopping.eos(subject(decoder), PROFILES["smoke"])
    roles = verdict.evidence["ends_came_as"]
    wanted = {"first token", "accepted draft", "recovered token", "bonus token"}
    assert wanted <= roles.keys()


@pytest.mark.parametrize(
    ("tokens", "role"),
    [
        (1, "first token"),
        (2, "accepted draft"),
        (3, "recovered token"),
        (4, "accepted draft"),
        (6, "bonus token"),
        (7, "token without drafts"),
        (8, "token of no round"),
    ],
)
def test_the_role_of_the_last_token(tokens: int, role: str) -> None:
    rounds = [Round(4, 2), Round(2, 2), Round(0, 0)]
    completion = Completion(tokens=[0] * tokens, finish_reason="eos", rounds=rounds)
    assert stopping.role_of_last(completion) == role


def without_last(completion: Completion) -> Completion:
    if completion.finish_reason == "length" or len(completion.tokens) == 1:
        return completion
    return Completion(tokens=completion.tokens[:-1], finish_reason=completion.finish_reason)


@pytest.mark.parametrize(
    ("check", "wrong", "words"),
    [
        (stopping.eos, answered(without_last), "for no reason"),
        (stopping.eos, asked(eos=()), "finish_reason is 'length', expected 'eos'"),
        (stopping.stop, asked(stop=()), "finish_reason is 'length', expected 'stop'"),
        (stopping.priority, asked(eos=()), "expected 'eos'"),
        (stopping.priority, asked(stop=()), "finish_reason is 'length', expected 'stop'"),
    ],
)
def test_a_wrong_end_is_a_fault_of_the_end(
    check: Check, wrong: Callable[..., object], words: str
) -> None:
    verdict = check(subject(Wrong(load("tiny"), wrong)), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.FAIL, True), str(verdict)
    assert verdict.fault_class is FaultClass.END
    assert "requests = [Request(" in verdict.repro


def test_a_token_too_many() -> None:
    verdict = stopping.length(subject(longer(load("tiny"))), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.END), str(verdict)


@pytest.mark.parametrize(("plain", "status"), [(False, Status.FAIL), (True, Status.ERROR)])
def test_a_crash_where_plain_decoding_answers(plain: bool, status: Status) -> None:
    def crashes(right: Decoder, requests: list[Request]) -> list[Completion]:
        raise IndexError("index out of range")

    verdict = stopping.context(subject(Wrong(load("tiny"), crashes, plain=plain)), BUDGET)
    assert verdict.status is status
    assert ("without speculation it answers" in verdict.message) is not plain
    assert verdict.fault_class is (None if plain else FaultClass.EDGE)


def test_wrong_ids_are_no_fault_of_the_end() -> None:
    verdict = stopping.stop(subject(last_token(load("tiny"))), BUDGET)
    assert verdict.status is Status.FAIL
    assert verdict.fault_class not in (None, FaultClass.END)
    verdict = stopping.stop(subject(last_token_in_both_arms(load("tiny"))), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.ERROR, FaultClass.CONTRACT)


def test_rows_that_are_right_alone_are_no_fault_of_the_end() -> None:
    def generate(right: Decoder, requests: list[Request]) -> list[Completion]:
        return right.generate(requests)[::-1]

    verdict = stopping.stop(subject(Wrong(load("tiny"), generate)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.BATCH), str(verdict)


@pytest.mark.parametrize("declared", [{"eos"}, {"stop"}, set()])
def test_a_decoder_that_declares_little_is_asked_what_it_takes(declared: set[str]) -> None:
    decoder = Wrong(load("tiny"), asked())
    decoder.capabilities = frozenset({"greedy"} | declared)
    passed = {check for check in CHECKS if check(subject(decoder), BUDGET).passed}
    wanted = {stopping.length, stopping.context}
    wanted |= {stopping.eos, stopping.priority} if "eos" in declared else set()
    wanted |= {stopping.stop, stopping.priority} if "stop" in declared else set()
    assert passed == wanted


def test_what_is_not_declared_is_unsupported() -> None:
    decoder = Wrong(load("tiny"), asked())
    decoder.capabilities = ALL - {"greedy"}
    for check in CHECKS:
        assert check(subject(decoder), BUDGET).status is Status.UNSUPPORTED


def test_a_long_context_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LONGEST_CONTEXT", 64)
    verdict = stopping.context(subject("reference"), BUDGET)
    assert (verdict.status, "use --pair tiny" in verdict.message) == (Status.UNSUPPORTED, True)
