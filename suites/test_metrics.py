"""What a decoder counts and times of its own is what happened."""

import pytest

from harness.checks import clock, metrics


@pytest.mark.pairs("tiny", "tiny-self", "tiny-bad")
def test_identities(subject, budget, conclude):
    conclude(metrics.identities(subject, budget))


@pytest.mark.pairs("tiny-hostile")
def test_wrong_drafts(subject, budget, conclude):
    conclude(metrics.wrong_drafts(subject, budget))


@pytest.mark.pairs("tiny-self")
def test_right_drafts(subject, budget, conclude):
    conclude(metrics.right_drafts(subject, budget))


@pytest.mark.pairs("tiny")
def test_clock(subject, budget, conclude):
    conclude(clock.clock(subject, budget))
