"""Output ends where plain decoding's does."""

import pytest

from harness.checks import stopping

PAIRS = ("tiny", "tiny-self", "tiny-bad")


@pytest.mark.pairs(*PAIRS)
def test_eos(subject, budget, conclude):
    conclude(stopping.eos(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_length(subject, budget, conclude):
    conclude(stopping.length(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_stop(subject, budget, conclude):
    conclude(stopping.stop(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_priority(subject, budget, conclude):
    conclude(stopping.priority(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_min_new_tokens(subject, budget, conclude):
    conclude(stopping.min_new_tokens(subject, budget))


@pytest.mark.pairs("tiny-gpt2", "tiny", "tiny-window")
def test_context(subject, budget, conclude):
    conclude(stopping.context(subject, budget))
