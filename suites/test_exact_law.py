"""The exact output law of a rule that takes its randomness from us."""

import pytest

from harness.checks import exact_law


@pytest.mark.pairs("tiny")
def test_tables(subject, budget, conclude):
    conclude(exact_law.tables(subject, budget))
