"""Greedy output is plain decoding's, token for token."""

import pytest

from harness.checks import greedy, positions, state

PAIRS = (
    "tiny",
    "tiny-bad",
    "tiny-self",
    "tiny-hostile",
    "tiny-ties",
    "tiny-gpt2",
    "tiny-window",
)


@pytest.mark.pairs(*PAIRS)
def test_identity(subject, budget, conclude):
    conclude(greedy.identity(subject, budget))


@pytest.mark.pairs("tiny-ties", "tiny-ties-self")
def test_ties(subject, budget, conclude):
    conclude(greedy.ties(subject, budget))


@pytest.mark.pairs("tiny-gpt2", "tiny-gpt2-bad", "tiny-gpt2-self", "tiny-bad")
def test_positions(subject, budget, conclude):
    conclude(positions.positions(subject, budget))


@pytest.mark.pairs("tiny-window", "tiny-window-bad", "tiny-window-self")
def test_window(subject, budget, conclude):
    conclude(state.window(subject, budget))


@pytest.mark.pairs("tiny-mamba-bad", "tiny-mamba", "tiny-mamba-self")
def test_recurrent(subject, budget, conclude):
    conclude(state.recurrent(subject, budget))
