"""Checks of seeds: what repeats, what must not, and outputs over seeds as a sample."""

from __future__ import annotations

import dataclasses
import functools

import decoders
import numpy as np
import pytest

from harness import oracle
from harness.adapters.reference import engine
from harness.checks import members, randomness
from harness.checks.budget import Budget
from harness.checks.continuations import Laws
from harness.checks.subject import Subject
from harness.contract import Request, Sampling
from harness.models import load_pair
from harness.verdict import FaultClass, Status
from reference_impl.mutants import MUTANTS

load = functools.cache(load_pair)
BUDGET = Budget(
    draft_tokens=(1, 4), prompts=1, new_tokens=16, samples=8_000, tables=40, large_tokens=600
)


def mutant(name: str, pair: str) -> Subject:
    return Subject(MUTANTS[name](load(pair)), load(pair), f"reference_impl.mutants:{name}")


def test_the_reference_passes() -> None:
    for check, pair in [
        (randomness.seed, "tiny"),
        (randomness.unseeded, "tiny"),
        (randomness.seeds, "micro"),
    ]:
        verdict = check(Subject(engine(load(pair)), load(pair), "reference"), BUDGET)
        assert verdict.status is Status.PASS, str(verdict)
        assert verdict.ruled_out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("restarted_generator", "4 unseeded calls gave 1 different"),
        ("shared_by_rows", "12 unseeded rows of a call gave 5 different"),
        ("seed_stays", "14 unseeded calls after one with a seed gave 13 different"),
    ],
)
def test_unseeded_requests_that_repeat(name: str, words: str) -> None:
    verdict = randomness.unseeded(mutant(name, "tiny"), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.FAIL, True), str(verdict)
    assert verdict.fault_class is FaultClass.RANDOMNESS
    assert verdict.likely_fault


@pytest.mark.parametrize("name", ["seed_truncated", "seed_truncated_subtle"])
def test_few_streams_of_many_seeds(name: str) -> None:
    verdict = randomness.seeds(mutant(name, "micro"), BUDGET)
    assert verdict.status is Status.FAIL, str(verdict)
    assert verdict.fault_class is FaultClass.RANDOMNESS
    assert "seeds 0 to 1999" in verdict.message


def test_a_law_that_is_wrong_in_both_arms_is_no_fault_of_seeds() -> None:
    decoder = decoders.draft_alone(load("micro-bad"))
    verdict = randomness.seeds(Subject(decoder, load("micro-bad"), "d"), BUDGET)
    assert (verdict.status, "not to blame" in verdict.message) == (Status.ERROR, True)


def test_a_pair_that_is_too_large_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "ENUMERABLE", 100)
    verdict = randomness.seeds(mutant("seed_ignored", "micro"), BUDGET)
    assert (verdict.status, "--pair micro" in verdict.message) == (Status.UNSUPPORTED, True)


def test_tables_of_seeds_by_hand() -> None:
    request = Request(prompt=(1,), max_new_tokens=4, sampling=Sampling(temperature=1.0))
    laws = dataclasses.replace(Laws.of(load("micro"), request), first=np.array([0.5, 0.5]))
    outputs = np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    _, one, two = members.of_seeds(outputs, laws, 2)
    assert one.counts.tolist() == [0, 1, 0, 1]  # seeds 0 1, 2 3: 01 11
    assert two.counts.tolist() == [0, 1, 0, 1]  # seeds 0 2, 1 3: 01 11
    assert two.law.tolist() == [0.25] * 4
