"""Is the adapter wired up?"""

import pytest

from harness.checks import smoke


@pytest.mark.pairs("tiny")
def test_wired(subject, budget, conclude):
    conclude(smoke.wired(subject, budget))
