"""Sampled output follows the target's law."""

import pytest

from harness.checks import distribution

# Smoke takes one K a setting, the other profiles all of both.
CASES = [
    pytest.param(
        setting, k, id=f"{setting} K={k}", marks=[] if k == 4 - 3 * (n % 2) else [pytest.mark.slow]
    )
    for n, setting in enumerate(distribution.SETTINGS)
    for k in (4, 1)
]


@pytest.mark.statistical
@pytest.mark.pairs("micro", "micro-bad", "micro-self", "micro-hostile")
@pytest.mark.parametrize(("setting", "draft_tokens"), CASES)
def test_family(subject, budget, conclude, setting, draft_tokens):
    conclude(distribution.family(subject, budget, setting, draft_tokens))
