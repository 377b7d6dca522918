"""Checks of sampling parameters: right decoders pass, each fault is found and put down rightly."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import msgspec
import numpy as np
import pytest
from decoders import ALL, Wrong, asked, declares_little, last_token_in_both_arms

from harness.adapters.reference import engine
from harness.checks import sampling_laws, sampling_params
from harness.checks.budget import PROFILES
from harness.checks.sampling_laws import SETTINGS, law
from harness.checks.subject import Subject
from harness.checks.toy_grammars import alphabet, alternating, ending
from harness.contract import Request, Sampling, validate
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.mutants import MUTANTS

load = functools.cache(load_pair)
BUDGET = dataclasses.replace(PROFILES["smoke"], draft_tokens=(1, 3))

GREEDY = {
    "penalties": "micro",
    "opposite_penalties": "tiny",
    "logit_bias": "tiny",
    "min_new_tokens": "tiny-self",
    "grammar": "tiny",
    "grammar_end": "tiny-self",
    "rows": "tiny",
}


def greedy(check: str, decoder: Any, pair: str = "") -> Verdict:
    on = load(pair or GREEDY[check])
    built = decoder(on) if callable(decoder) else decoder
    return getattr(sampling_params, check)(Subject(built, on, "no:name"), BUDGET)


def sampled(decoder: Any, setting: str, pair: str = "micro", **budget: Any) -> Verdict:
    limits = dataclasses.replace(BUDGET, **budget)
    return law(Subject(decoder(load(pair)), load(pair), "no:name"), limits, setting)


# --- greedy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", GREEDY)
def test_the_reference_passes_and_it_is_said_what_that_rules_out(check: str) -> None:
    verdict = greedy(check, engine)
    assert verdict.passed, verdict
    assert verdict.check == f"sampling_params.{check}"
    assert verdict.ruled_out


@pytest.mark.parametrize("check", GREEDY)
def test_greedy_decoding_alone_is_not_asked_for_them(check: str) -> None:
    assert greedy(check, declares_little).status is Status.UNSUPPORTED


@pytest.mark.parametrize("check", GREEDY)
def test_a_decoder_that_ignores_them_fails(check: str) -> None:
    wrong = lambda pair: Wrong(pair, asked(sampling=Sampling()))  # noqa: E731
    verdict = greedy(check, wrong)
    assert verdict.status is Status.FAIL
    ends = check == "min_new_tokens"
    assert verdict.fault_class is (FaultClass.END if ends else FaultClass.PROCESSORS)
    assert verdict.likely_fault
    assert verdict.repro


@pytest.mark.parametrize("check", ["penalties", "logit_bias", "grammar"])
def test_what_is_wrong_without_them_too_is_not_put_down_to_them(check: str) -> None:
    verdict = greedy(check, MUTANTS["accept_all"])
    assert verdict.status is Status.FAIL
    assert verdict.fault_class is not FaultClass.PROCESSORS


def test_a_decoder_whose_plain_arm_is_wrong_as_well_is_not_blamed() -> None:
    assert greedy("penalties", last_token_in_both_arms).status is Status.ERROR


def test_what_is_not_declared_is_left_out() -> None:
    """A bias that helps a penalty to show is not needed."""
    decoder = engine(load("micro"))
    decoder.capabilities = ALL - {"logit_bias"}
    verdict = greedy("penalties", decoder)
    assert verdict.passed
    assert "logit_bias" in verdict.ruled_out


def test_rows_that_are_right_alone_are_said_to_be_mixed_up() -> None:
    verdict = greedy("rows", MUTANTS["histories_of_drafting_rows"])
    assert verdict.status is Status.FAIL
    assert verdict.likely_fault == "rows of a batch have each other's history"


def test_a_crash_at_the_end_of_a_grammar_is_put_down_to_it() -> None:
    verdict = greedy("grammar_end", MUTANTS["grammar_asked_after_its_end"])
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.PROCESSORS)
    assert "the matcher has terminated" in verdict.message


def test_opposite_penalties_that_the_target_does_not_feel_prove_nothing() -> None:
    """One token of output has no token before it."""
    budget = dataclasses.replace(BUDGET, new_tokens=1)
    pair = load("tiny")
    subject = Subject(engine(pair), pair, "reference")
    verdict = sampling_params.opposite_penalties(subject, budget)
    assert verdict.status is Status.INCONCLUSIVE


# --- grammars -------------------------------------------------------------------------------------


def test_parities_take_turns_after_the_marker() -> None:
    grammar = alternating(range(8), marker=5)
    assert grammar.walk([1, 1, 5, 2, 3, 0, 7]) is not None
    assert grammar.walk([1, 1, 5, 3]) is None
    assert grammar.walk([1, 1, 5, 2, 4]) is None
    assert grammar.walk([2, 4, 1, 3]) == 0


def test_a_grammar_ends_when_it_must() -> None:
    grammar = ending(range(8), eos=3, after=2)
    assert grammar.walk([1, 2, 3]) == 3
    assert grammar.states[3] == {}
    assert grammar.walk([1, 3]) is None
    assert grammar.walk([1, 2, 4]) is None
    request = Request(prompt=(1,), max_new_tokens=9, eos=(3,), sampling=Sampling(grammar=grammar))
    validate(request, load("micro"))


def test_of_a_large_vocabulary_a_grammar_names_few_tokens() -> None:
    large = dataclasses.replace(load("tiny"), vocab_size=50_000)
    assert len(alphabet(large, [49_999])) == 257
    assert list(alphabet(load("micro"), [3])) == list(range(8))


# --- sampled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("pair", ["micro", "micro-bad"])
def test_the_reference_follows_every_law(setting: str, pair: str) -> None:
    verdict = sampled(engine, setting, pair)
    assert verdict.passed, verdict
    for mistake in SETTINGS[setting].mistaken:
        assert mistake in verdict.ruled_out


@pytest.mark.parametrize("setting", SETTINGS)
def test_so_does_no_decoder_that_ignores_the_parameters(setting: str) -> None:
    wrong = lambda pair: Wrong(pair, asked(sampling=Sampling(temperature=1.0)))  # noqa: E731
    verdict = sampled(wrong, setting)
    assert verdict.status is Status.FAIL
    assert verdict.fault_class is SETTINGS[setting].kind
    assert "in rows of a block" in verdict.likely_fault


def test_what_is_wrong_at_temperature_1_too_is_not_put_down_to_the_parameters() -> None:
    verdict = sampled(MUTANTS["accept_all"], "frequency", "micro-bad")
    assert verdict.status is Status.FAIL
    assert verdict.fault_class is None
    assert "none of these parameters" in verdict.likely_fault


def test_a_plain_arm_that_is_wrong_as_well_is_not_blamed() -> None:
    def wrong(pair: Any) -> Wrong:
        return Wrong(pair, asked(sampling=Sampling(temperature=1.0)), plain=True)

    assert sampled(wrong, "T=0.3").status is Status.ERROR


def test_few_samples_prove_nothing() -> None:
    assert sampled(engine, "T=0.3", samples=4).status is Status.INCONCLUSIVE


def test_large_pairs_and_missing_capabilities_are_unsupported() -> None:
    large = dataclasses.replace(load("tiny"), vocab_size=1_000)
    subject = Subject(engine(load("tiny")), large, "reference")
    assert law(subject, BUDGET, "T=0.3").status is Status.UNSUPPORTED
    decoder = engine(load("micro"))
    decoder.capabilities = ALL - {"min_p"}
    verdict = sampled(lambda _: decoder, "T=1.5 min_p=0.25")
    assert verdict.status is Status.UNSUPPORTED
    assert "min_p" in verdict.message


def test_without_seeds_and_without_a_plain_arm_it_says_as_much() -> None:
    decoder = engine(load("micro"))
    decoder.capabilities = ALL - {"plain", "seed"}
    assert sampled(lambda _: decoder, "T=0.3").passed


def test_an_output_that_has_ended_repeats_its_eos() -> None:
    pair, vocab = load("micro"), 8
    request = Request(
        prompt=(1, 2, 3), max_new_tokens=4, sampling=Sampling(temperature=1.0), eos=(2,)
    )
    joint = sampling_laws._joint(pair, request).reshape(vocab, vocab, vocab)
    assert joint.sum() == pytest.approx(1, abs=1e-6)
    others = [token for token in range(vocab) if token != 2]
    assert joint[2, others].sum() == joint[:, 2, others].sum() == 0
    endless = sampling_laws._joint(pair, msgspec.structs.replace(request, eos=()))
    at = endless.reshape(vocab, vocab, vocab)
    assert joint[2, 2, 2] == pytest.approx(at[2].sum(), abs=1e-6)
    assert np.allclose(joint[1, 2, 2], at[1, 2].sum(), atol=1e-6)
    assert np.allclose(joint[np.ix_(others, others)], at[np.ix_(others, others)], atol=1e-6)
