"""Greedy output is plain decoding's, token for token."""

import pytest

from harness.checks import greedy

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
