"""Log probabilities are those of the target's law."""

import pytest

from harness.checks import logprobs

PAIRS = ("tiny", "tiny-self", "tiny-bad")


@pytest.mark.pairs(*PAIRS)
def test_values(subject, budget, conclude):
    conclude(logprobs.values(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_arms(subject, budget, conclude):
    conclude(logprobs.arms(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_mass(subject, budget, conclude):
    conclude(logprobs.mass(subject, budget))
