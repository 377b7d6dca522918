"""A row of a batch gets what it gets alone."""

import pytest

from harness.checks import batching


@pytest.mark.pairs("tiny", "tiny-self", "tiny-bad", "tiny-window", "tiny-gpt2")
def test_rows(subject, budget, conclude):
    conclude(batching.rows(subject, budget))


@pytest.mark.pairs("tiny-bad", "tiny", "tiny-self")
def test_ends(subject, budget, conclude):
    conclude(batching.ends(subject, budget))


@pytest.mark.pairs("tiny-bad", "tiny", "tiny-self")
def test_sampled(subject, budget, conclude):
    conclude(batching.sampled(subject, budget))
