"""Output ends where plain decoding's does."""

import pytest

from harness.checks import stopping


@pytest.mark.pairs("tiny-self", "tiny", "tiny-bad")
def test_offsets(subject, budget, conclude):
    conclude(stopping.offsets(subject, budget))
