"""A stream gives what ``generate`` gives."""

import pytest

from harness.checks import streaming

PAIRS = ("tiny-self", "tiny")


@pytest.mark.pairs(*PAIRS)
def test_pieces(subject, budget, conclude):
    conclude(streaming.pieces(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_every_id(subject, budget, conclude):
    conclude(streaming.every_id(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_cancel(subject, budget, conclude):
    conclude(streaming.cancel(subject, budget))
