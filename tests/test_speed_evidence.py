"""Evidence of speculation: target calls saved, drafts accepted."""

from __future__ import annotations

import functools

import msgspec
import pytest
from decoders import ALL, Wrong, answered, asked

from harness import oracle
from harness.adapters import load_decoder
from harness.checks import speed_evidence
from harness.checks.budget import Budget
from harness.checks.prompts import looping_prompt
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Metrics, Round
from harness.models import load_pair
from harness.verdict import FaultClass, Status

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(1, 3), prompts=1, new_tokens=8, samples=100, tables=1)


def subject(decoder: Decoder | str, pair: str = "tiny-self") -> Subject:
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, load(pair))
    return Subject(decoder, load(pair), "no:name")


@pytest.mark.parametrize(
    "decoder", ["reference", "reference-ngram", "reference-page", "transformers-lookup"]
)
def test_right_decoders_pass(decoder: str) -> None:
    verdict = speed_evidence.target_calls(subject(decoder), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.evidence["target_calls"] < verdict.evidence["tokens"]
    assert "in the first half" in verdict.message


def test_without_rounds_and_metrics_nothing_can_be_said() -> None:
    decoder = Wrong(load("tiny-self"), asked())
    decoder.capabilities = ALL - {"rounds", "metrics"}
    assert speed_evidence.target_calls(subject(decoder), BUDGET).status is Status.UNSUPPORTED
    mute = answered(lambda c: Completion(tokens=c.tokens, finish_reason=c.finish_reason))
    verdict = speed_evidence.target_calls(subject(Wrong(load("tiny-self"), mute)), BUDGET)
    assert verdict.status is Status.UNSUPPORTED


def test_metrics_alone_will_do() -> None:
    silent = Wrong(load("tiny-self"), answered(lambda c: msgspec.structs.replace(c, rounds=None)))
    assert speed_evidence.target_calls(subject(silent), BUDGET).passed


def unaccepted(completion: Completion) -> Completion:
    rounds = [Round(3, 0) for _ in completion.tokens]
    return msgspec.structs.replace(completion, rounds=rounds)


def test_plain_decoding_is_no_speculation() -> None:
    plain = Wrong(load("tiny-self"), asked(speculate=False))
    verdict = speed_evidence.target_calls(subject(plain), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.SPEED)
    assert verdict.likely_fault == "nothing is drafted: plain decoding"
    verdict = speed_evidence.target_calls(
        subject(Wrong(load("tiny-self"), answered(unaccepted))), BUDGET
    )
    assert (verdict.status, verdict.likely_fault) == (Status.FAIL, "drafts are never accepted")


def test_calls_that_are_saved_by_no_accepted_draft() -> None:
    def change(completion: Completion) -> Completion:
        few = Metrics(target_calls=1, drafted=5, accepted=0)
        return msgspec.structs.replace(completion, rounds=None, metrics=few)

    verdict = speed_evidence.target_calls(
        subject(Wrong(load("tiny-self"), answered(change))), BUDGET
    )
    assert (verdict.status, "none of 20 drafts" in verdict.message) == (Status.FAIL, True)


def test_acceptance_that_falls_is_told() -> None:
    fades = Completion(
        tokens=[0] * 100,
        finish_reason="length",
        rounds=[Round(4, 4)] * 10 + [Round(4, 0)] * 50,
    )
    halves = speed_evidence._halves([fades])
    assert halves == [[40, 0], [0, 200]]
    assert "falls along the text: 1.00 in the first half, 0.00" in speed_evidence._decay(
        halves, BUDGET
    )
    assert "acceptance is: 0.50" in speed_evidence._decay([[5, 5], [4, 6]], BUDGET)
    assert speed_evidence._halves([Completion(tokens=[0], finish_reason="length")]) == []


def test_a_looping_prompt_is_greedy_text_that_repeats_itself() -> None:
    pair = load("tiny")
    prompt = looping_prompt(pair, 20, 0)
    assert prompt == looping_prompt(pair, 20, 0)
    assert len(prompt) >= 8
    assert list(prompt[4:]) == oracle.greedy_path(pair, prompt[:4], len(prompt) - 4)


def read_again(completion: Completion) -> Completion:
    m = completion.metrics
    assert m is not None
    more = (m.target_tokens or 0) + 60 * (m.target_calls or 0)
    metrics = msgspec.structs.replace(m, target_tokens=more)
    return msgspec.structs.replace(completion, metrics=metrics)


def test_a_prompt_that_is_read_in_every_round_fails() -> None:
    wrong = Wrong(load("tiny"), answered(read_again))
    verdict = speed_evidence.target_tokens(subject(wrong, "tiny"), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.SPEED)
    assert "read again" in verdict.likely_fault


@pytest.mark.parametrize(
    "decoder", ["reference", "reference-ngram", "reference-branches", "reference-preemption"]
)
def test_a_text_that_is_mostly_read_once_passes(decoder: str) -> None:
    verdict = speed_evidence.target_tokens(subject(decoder, "tiny"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)


def test_what_is_not_counted_is_unsupported() -> None:
    silent = Wrong(
        load("tiny"), answered(lambda c: msgspec.structs.replace(c, metrics=Metrics(tokens=1)))
    )
    verdict = speed_evidence.target_tokens(subject(silent, "tiny"), BUDGET)
    assert verdict.status is Status.UNSUPPORTED
