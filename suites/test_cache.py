"""What a decoder keeps, between requests and between rounds, does not show."""

import pytest

from harness.checks import reuse


@pytest.mark.pairs("tiny-hostile")
def test_all_rejected(subject, budget, conclude):
    conclude(reuse.all_rejected(subject, budget))


@pytest.mark.pairs("tiny-self", "tiny-gpt2-self")
def test_none_rejected(subject, budget, conclude):
    conclude(reuse.none_rejected(subject, budget))


@pytest.mark.pairs("tiny", "tiny-gpt2", "tiny-window")
def test_alternating(subject, budget, conclude):
    conclude(reuse.alternating(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self")
def test_second_turn(subject, budget, conclude):
    conclude(reuse.second_turn(subject, budget))


@pytest.mark.pairs("tiny", "tiny-gpt2")
def test_shared_prefix(subject, budget, conclude):
    conclude(reuse.shared_prefix(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self")
def test_second_request(subject, budget, conclude):
    conclude(reuse.second_request(subject, budget))
