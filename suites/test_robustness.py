"""Requests that make no sense are refused."""

import pytest

from harness.checks import robustness


@pytest.mark.pairs("tiny")
def test_bad_input(subject, budget, conclude):
    conclude(robustness.bad_input(subject, budget))
