"""A budget that a slow decoder can keep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.checks import pace
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Completion, Request
from harness.models import load_pair


class Slow:
    """Takes a second a request, by a clock of its own."""

    def __init__(self, capabilities: set[str]) -> None:
        self.capabilities = frozenset(capabilities)
        self.now = 0.0
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.now += len(requests)
        self.asked += requests
        if "broken" in self.capabilities:
            raise RuntimeError("it is")
        return [Completion(tokens=[1] * r.max_new_tokens, finish_reason="length") for r in requests]


@pytest.mark.parametrize("capability", ["greedy", "sampling"])
def test_the_pace_is_that_of_generations_together(
    capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Slow({capability})
    monkeypatch.setattr(pace.time, "perf_counter", lambda: decoder.now)
    assert pace.generations_per_second(Subject(decoder, load_pair("micro"), "no:name")) == 1.0
    assert {r.sampling.greedy for r in decoder.asked} == {capability == "greedy"}


def test_a_decoder_that_answers_nothing_is_for_the_checks_to_judge() -> None:
    subject = Subject(Slow({"greedy", "broken"}), load_pair("micro"), "no:name")
    budget = PROFILES["ci"]
    assert pace.within(budget, 10, pace.generations_per_second(subject)) == budget


def test_samples_are_cut_to_what_takes_as_long_and_never_to_nothing() -> None:
    budget = PROFILES["ci"]
    assert pace.within(budget, 30, 100.0).samples == 1500  # of each of two arms
    assert pace.within(budget, 30, 1e9) == budget
    assert pace.within(budget, 1, 0.01).samples == pace.FEWEST
