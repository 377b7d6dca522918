"""Seeds repeat, and calls without one are independent."""

import pytest

from harness.checks import randomness


@pytest.mark.pairs("tiny", "tiny-bad")
def test_seed(subject, budget, conclude):
    conclude(randomness.seed(subject, budget))


@pytest.mark.pairs("tiny")
def test_unseeded(subject, budget, conclude):
    conclude(randomness.unseeded(subject, budget))


@pytest.mark.statistical
@pytest.mark.pairs("micro", "micro-bad")
def test_seeds(subject, budget, conclude):
    conclude(randomness.seeds(subject, budget))
