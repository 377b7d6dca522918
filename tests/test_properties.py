"""Drawn requests and sequences of calls: right decoders pass, wrong ones are found and named."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import decoders
import pytest
from decoders import Wrong

from harness.adapters import load_decoder
from harness.checks import properties
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.models import load_pair
from harness.verdict import FaultClass, Status

load = functools.cache(load_pair)
BUDGET = Budget(
    draft_tokens=(3,), prompts=1, new_tokens=8, samples=100, tables=1, examples=20, seed=1
)
CHECKS = [properties.any_request, properties.any_sequence]


def subject(decoder: str | Any, pair: str = "tiny") -> Subject:
    if isinstance(decoder, str):
        return Subject(load_decoder(decoder, load(pair)), load(pair), decoder)
    return Subject(decoder, load(pair), "no:name")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["reference", "reference-ngram", "reference-page"])
def test_right_decoders_pass(name: str, check: Any) -> None:
    verdict = check(subject(name, "micro"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert "drawn from: eos, grammar, greedy" in verdict.ruled_out


@pytest.mark.parametrize("check", CHECKS)
def test_only_what_is_declared_is_asked_for(check: Any) -> None:
    verdict = check(subject("decoders:declares_little"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out.endswith("drawn from: greedy")
    decoder = Wrong(load("tiny"), decoders.asked())
    decoder.capabilities = frozenset({"batch"})
    assert check(subject(decoder), BUDGET).status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("without_eos", FaultClass.END),
        ("always_length", FaultClass.END),
        ("seedless", FaultClass.RANDOMNESS),
    ],
)
def test_a_fault_is_found_and_named(name: str, kind: FaultClass) -> None:
    budget = dataclasses.replace(BUDGET, examples=100)
    verdict = properties.any_request(subject(f"decoders:{name}"), budget)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, kind), str(verdict)
    assert f"load_decoder('decoders:{name}'" in verdict.repro


@pytest.mark.parametrize("check", CHECKS)
def test_a_fault_of_both_arms_is_an_error(check: Any) -> None:
    verdict = check(subject("decoders:last_token_in_both_arms"), BUDGET)
    assert verdict.status is Status.ERROR, str(verdict)
    assert "speculation is not to blame" in verdict.message


@pytest.mark.parametrize("check", CHECKS)
def test_a_fault_of_the_plain_arm_alone_is_an_error(check: Any) -> None:
    class PlainIsWrong(Wrong):
        def generate(self, requests: Any) -> Any:
            answers = self._right.generate(requests)
            return [
                answer if request.speculate else decoders.other_last_token(answer)
                for request, answer in zip(requests, answers, strict=True)
            ]

    verdict = check(subject(PlainIsWrong(load("tiny"), decoders.asked())), BUDGET)
    assert verdict.status is Status.ERROR, str(verdict)
    assert "speculation is not to blame" in verdict.message


@pytest.mark.parametrize("check", CHECKS)
def test_a_crash_is_an_error(check: Any) -> None:
    verdict = check(subject("decoders:raises"), BUDGET)
    assert verdict.status is Status.ERROR
    assert verdict.message.startswith("the decoder raised RuntimeError: out of memory")


def test_examples_are_those_of_the_seed() -> None:
    def calls(seed: int) -> list[str]:
        asked: list[str] = []

        def generate(right: Any, requests: Any) -> Any:
            asked.append(repr(requests))
            return right.generate(requests)

        decoder = Wrong(load("tiny"), generate, plain=True)
        budget = dataclasses.replace(BUDGET, examples=5, seed=seed)
        assert properties.any_request(subject(decoder), budget).passed
        return asked

    first = calls(1)
    assert first == calls(1)
    assert first != calls(2)


def test_state_that_a_closed_stream_leaves_is_shown_by_a_program() -> None:
    budget = dataclasses.replace(BUDGET, examples=200)
    name = "reference_impl.mutants:closed_stream_not_cleared"
    verdict = properties.any_sequence(subject(name), budget)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.STREAM), str(verdict)
    assert "stream.close()" in verdict.repro
    assert verdict.repro.count("decoder.") == 2
