"""Speculation takes place, and saves calls of the target."""

import pytest

from harness.checks import speed_evidence


@pytest.mark.pairs("tiny-self", "tiny")
def test_target_calls(subject, budget, conclude):
    conclude(speed_evidence.target_calls(subject, budget))


@pytest.mark.pairs("tiny", "tiny-bad")
def test_target_tokens(subject, budget, conclude):
    conclude(speed_evidence.target_tokens(subject, budget))
