"""Sampled output follows the target's law."""

import pytest

from harness.checks import distribution


@pytest.mark.statistical
@pytest.mark.pairs("micro", "micro-bad", "micro-self", "micro-hostile")
@pytest.mark.parametrize("draft_tokens", [4, 1])
@pytest.mark.parametrize("setting", distribution.SETTINGS)
def test_joint(subject, budget, conclude, setting, draft_tokens):
    conclude(distribution.joint(subject, budget, setting, draft_tokens))
