"""The form of an answer: what a decoder may not do to requests, lists and order."""

from __future__ import annotations

import functools
from collections.abc import Callable

import decoders
import msgspec
import pytest
from decoders import ALL, Wrong, asked

from harness.adapters import load_decoder
from harness.checks import contract
from harness.checks.budget import Budget
from harness.checks.form import disordered
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Request, Round
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(1, 3), prompts=1, new_tokens=8, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[Check] = [contract.form, contract.requests, contract.nothing]


def subject(decoder: Decoder | str) -> Subject:
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, load("tiny"))
    return Subject(decoder, load("tiny"), "no:name")


@pytest.mark.parametrize("decoder", ["reference", "reference-page", "transformers-lookup"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_right_decoders_pass(check: Check, decoder: str) -> None:
    verdict = check(subject(decoder), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


def test_a_decoder_that_declares_little_is_asked_what_it_takes() -> None:
    verdict = contract.form(subject(decoders.declares_little(load("tiny"))), BUDGET)
    assert (verdict.status, verdict.evidence["requests"]) == (Status.PASS, 4)


def test_a_decoder_that_declares_nothing_is_asked_nothing() -> None:
    decoder = Wrong(load("tiny"), asked())
    decoder.capabilities = frozenset({"plain"})
    for check in (contract.form, contract.requests):
        assert check(subject(decoder), BUDGET).status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("too_few", "requests were answered by "),
        ("beyond_the_vocabulary", "token 64 is outside the vocabulary"),
        ("nothing_at_all", "a completion is a NoneType"),
        ("nan_logprobs", "log probability nan"),
        ("sorted_rows", "another order than the requests: max_new_tokens are "),
    ],
)
def test_another_form_is_an_error(name: str, words: str) -> None:
    verdict = contract.form(subject(getattr(decoders, name)(load("tiny"))), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.ERROR, True), str(verdict)
    own = FaultClass.LOGPROBS if name == "nan_logprobs" else FaultClass.CONTRACT
    assert verdict.fault_class is own
    assert "show(pair, requests, decoder.generate(requests))" in verdict.repro


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(None, "rounds are declared, and none is reported"), ([Round(1, 2)], "accepts 2 of 1")],
)
def test_rounds_that_cannot_be_are_an_error(rounds: list[Round] | None, words: str) -> None:
    wrong = decoders.answered(lambda c: msgspec.structs.replace(c, rounds=rounds))
    verdict = contract.form(subject(Wrong(load("tiny"), wrong)), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.ERROR, True), str(verdict)


def test_a_request_that_is_written_to_is_a_fault() -> None:
    def generate(right: Decoder, requests: list[Request]) -> list[Completion]:
        for request in requests:
            request.sampling.logit_bias.pop(0, None)
        return right.generate(requests)

    verdict = contract.requests(subject(Wrong(load("tiny"), generate)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.CONTRACT)
    assert verdict.evidence["before"] != verdict.evidence["after"]


def test_an_empty_list_that_is_not_answered_by_one() -> None:
    class Crashes:
        capabilities = ALL

        def generate(self, requests: list[Request]) -> list[Completion]:
            return [Completion(tokens=[max(len(r.prompt) for r in requests)], finish_reason="eos")]

    verdict = contract.nothing(subject(Crashes()), BUDGET)
    assert (verdict.status, "raised ValueError" in verdict.message) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("asked", "got", "told"),
    [
        ([3, 5], [5, 3], True),
        ([3, 5], [3, 5], False),
        ([3, 5], [3, 4], False),  # too short, but where it belongs
        ([4, 4], [4, 4], False),
    ],
)
def test_another_order_shows_in_the_lengths(asked: list[int], got: list[int], told: bool) -> None:
    requests = [Request(prompt=(1,), max_new_tokens=n) for n in asked]
    answers = [Completion(tokens=[0] * n, finish_reason="length") for n in got]
    assert bool(disordered(requests, answers)) is told
    ended = [msgspec.structs.replace(request, eos=(0,)) for request in requests]
    assert not disordered(ended, answers)
