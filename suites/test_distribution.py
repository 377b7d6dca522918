"""Sampled output follows the target's law."""

import pytest

from harness.checks import distribution, evidence

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


@pytest.mark.statistical
@pytest.mark.pairs("micro-bad", "micro-hostile")
def test_recovered(subject, budget, conclude):
    conclude(distribution.recovered(subject, budget))


FIRST, *OTHERS = evidence.SETTINGS


@pytest.mark.statistical
@pytest.mark.pairs("tiny", "tiny-bad", "tiny-window", "tiny-gpt2", "smollm2-135m")
@pytest.mark.parametrize("setting", [FIRST, OTHERS[0]])
def test_evidence(subject, budget, conclude, setting):
    conclude(evidence.evidence(subject, budget, setting))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.pairs("tiny-hostile", "tiny-self")
def test_evidence_of_other_drafts(subject, budget, conclude):
    conclude(evidence.evidence(subject, budget, FIRST))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.pairs("tiny", "tiny-bad")
@pytest.mark.parametrize("setting", OTHERS[1:])
def test_evidence_at_other_settings(subject, budget, conclude, setting):
    conclude(evidence.evidence(subject, budget, setting))
