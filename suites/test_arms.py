"""Output with speculation is that without: what can be said where the weights are not at hand."""

import pytest

from harness.checks import arms_alone


@pytest.mark.statistical
@pytest.mark.pairs("tiny", "tiny-bad", "tiny-window")
def test_greedy(subject, budget, conclude):
    conclude(arms_alone.greedy(subject, budget))


@pytest.mark.statistical
@pytest.mark.pairs("tiny-bad", "tiny", "tiny-self")
def test_sampled(subject, budget, conclude):
    conclude(arms_alone.sampled(subject, budget))
