"""What is said is a token."""

import pytest

from harness.checks import vocabulary


@pytest.mark.pairs("tiny-padded")
def test_padding(subject, budget, conclude):
    conclude(vocabulary.padding(subject, budget))
