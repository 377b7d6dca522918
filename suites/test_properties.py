"""Any request, and any sequence of them."""

import pytest

from harness.checks import properties

PAIRS = ("tiny", "tiny-bad", "tiny-window", "tiny-gpt2", "tiny-self")


@pytest.mark.pairs(*PAIRS)
def test_requests(subject, budget, conclude):
    conclude(properties.any_request(subject, budget))


@pytest.mark.pairs(*PAIRS)
def test_sequences(subject, budget, conclude):
    conclude(properties.any_sequence(subject, budget))
