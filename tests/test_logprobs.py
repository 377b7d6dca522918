"""Log probabilities: what is off is found, what noise decides is not."""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec
import pytest
import torch
from decoders import ALL, Wrong, answered, asked

from harness.adapters import load_decoder
from harness.checks import greedy, logprobs
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Request, Sampling
from harness.models import load_pair
from harness.stats.rows import Rows
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.sampling import Parameters

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(3,), prompts=1, new_tokens=8, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[Check] = [logprobs.values, logprobs.arms, logprobs.mass]


def subject(decoder: Decoder | str) -> Subject:
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, load("tiny"))
    return Subject(decoder, load("tiny"), "no:name")


def off_by(nats: float) -> Callable[[Completion], Completion]:
    def change(completion: Completion) -> Completion:
        values = completion.logprobs and [v + nats for v in completion.logprobs]
        return msgspec.structs.replace(completion, logprobs=values)

    return change


def one_missing(completion: Completion) -> Completion:
    return msgspec.structs.replace(
        completion, logprobs=completion.logprobs and completion.logprobs[1:]
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_reference_passes(check: Check) -> None:
    verdict = check(subject("reference"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_not_declared_is_unsupported(check: Check) -> None:
    assert check(subject("reference-page"), BUDGET).status is Status.UNSUPPORTED


@pytest.mark.parametrize("check", CHECKS[:2], ids=lambda check: check.__name__)
def test_a_thousandth_of_a_nat_is_seen(check: Check) -> None:
    verdict = check(subject(Wrong(load("tiny"), answered(off_by(-1e-3)))), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.LOGPROBS)
    assert "logprobs=True" in verdict.repro


def test_what_plain_decoding_gets_wrong_as_well_is_not_speculations_fault() -> None:
    both = subject(Wrong(load("tiny"), answered(off_by(-1e-3)), plain=True))
    verdict = logprobs.values(both, BUDGET)
    assert (verdict.status, "not to blame" in verdict.message) == (Status.ERROR, True)
    assert logprobs.arms(both, BUDGET).passed  # they agree, whatever they say


@pytest.mark.parametrize("check", CHECKS[:2], ids=lambda check: check.__name__)
def test_one_that_is_missing(check: Check) -> None:
    verdict = check(subject(Wrong(load("tiny"), answered(one_missing))), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.LOGPROBS)
    assert "not one for every token; without speculation" in verdict.message
    verdict = check(subject(Wrong(load("tiny"), answered(one_missing), plain=True)), BUDGET)
    assert verdict.status is Status.ERROR
    speculative = Wrong(load("tiny"), answered(one_missing))
    speculative.capabilities = ALL - {"plain"}
    assert logprobs.values(subject(speculative), BUDGET).status is Status.ERROR


def test_probabilities_that_are_too_much_together() -> None:
    def certain(completion: Completion) -> Completion:
        zeros = completion.logprobs and [0.0] * len(completion.logprobs)
        return msgspec.structs.replace(completion, logprobs=zeros)

    verdict = logprobs.mass(subject(Wrong(load("tiny"), answered(certain))), BUDGET)
    assert (verdict.status, "add up to" in verdict.message) == (Status.FAIL, True)
    verdict = logprobs.mass(subject(Wrong(load("tiny"), answered(certain), plain=True)), BUDGET)
    assert verdict.status is Status.ERROR


def test_one_token_with_two_probabilities() -> None:
    def by_length(completion: Completion) -> Completion:
        return off_by(-0.1 * (completion.tokens[-1] % 2))(completion)

    verdict = logprobs.mass(subject(Wrong(load("tiny"), answered(by_length))), BUDGET)
    assert (verdict.status, "has log probabilities" in verdict.message) == (Status.FAIL, True)


def test_a_decoder_that_only_samples() -> None:
    decoder = Wrong(load("tiny"), asked())
    decoder.capabilities = frozenset({"sampling", "logprobs"})
    assert logprobs.values(subject(decoder), BUDGET).passed
    assert logprobs.mass(subject(decoder), BUDGET).passed
    assert logprobs.arms(subject(decoder), BUDGET).status is Status.UNSUPPORTED


def test_greedy_ones_are_at_temperature_1() -> None:
    request = Request(prompt=(1,), max_new_tokens=1, sampling=Sampling(presence_penalty=0.5))
    sampling = logprobs.at_temperature(request).sampling
    assert (sampling.temperature, sampling.presence_penalty) == (1.0, 0.5)
    warm = msgspec.structs.replace(request, sampling=Sampling(temperature=0.7, top_k=3))
    assert logprobs.at_temperature(warm) is warm


def test_noise_is_measured_and_stretched() -> None:
    pair = load("tiny")
    one, cold, penalised = (
        logprobs.tolerance(pair, sampling, 0.0)
        for sampling in (
            Sampling(temperature=1.0),
            Sampling(temperature=0.5),
            Sampling(temperature=1.0, repetition_penalty=1.5),
        )
    )
    assert one == 2 * greedy.NOISE_MARGIN * greedy.noise_of(pair) > 0
    assert (cold, penalised) == (2 * one, 1.5 * one)
    eps = torch.finfo(torch.float32).eps
    assert logprobs.tolerance(pair, Sampling(temperature=1.0), 1e3) == pytest.approx(8e3 * eps)


@pytest.mark.parametrize(
    ("filters", "logits", "decided"),
    [
        ({}, [3.0, 2.0, 1.0, 1.0], True),  # there is nothing to keep or drop
        ({"top_k": 2}, [3.0, 2.0, 1.0, 0.0], True),
        ({"top_k": 2}, [3.0, 2.0, 2.0 - 1e-5, 0.0], False),
        ({"top_p": 0.7}, [0.6, 0.2, 0.1, 0.1], True),
        ({"top_p": 0.6}, [0.6, 0.2, 0.1, 0.1], False),
        ({"min_p": 0.25}, [0.6, 0.2, 0.1, 0.1], True),
        ({"min_p": 0.5}, [0.5, 0.25, 0.125, 0.125], False),
    ],
)
def test_where_noise_decides_what_a_filter_keeps_nothing_is_judged(
    filters: dict[str, float], logits: list[float], decided: bool
) -> None:
    scores = torch.tensor([logits])
    if "top_k" not in filters:
        scores = scores.abs().log()
    request = Request(
        prompt=(0,),
        max_new_tokens=1,
        sampling=Sampling(temperature=1.0, **filters),  # type: ignore[arg-type]
    )
    rows = Rows(
        scores.softmax(-1),
        torch.tensor([0]),
        scores=scores,
        parameters=Parameters.of([request], 4),
    )
    assert logprobs.clear(rows, 1e-4).tolist() == [decided]
