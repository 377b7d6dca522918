"""Sampling parameters hold at every position of a block."""

import pytest

from harness.checks import sampling_laws, sampling_params


@pytest.mark.pairs("micro", "micro-bad", "micro-self", "tiny-bad")
def test_penalties(subject, budget, conclude):
    conclude(sampling_params.penalties(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self")
def test_opposite_penalties(subject, budget, conclude):
    conclude(sampling_params.opposite_penalties(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self", "tiny-bad")
def test_logit_bias(subject, budget, conclude):
    conclude(sampling_params.logit_bias(subject, budget))


@pytest.mark.pairs("tiny-self", "tiny", "tiny-bad")
def test_min_new_tokens(subject, budget, conclude):
    conclude(sampling_params.min_new_tokens(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self", "tiny-bad")
def test_grammar(subject, budget, conclude):
    conclude(sampling_params.grammar(subject, budget))


@pytest.mark.pairs("tiny-self", "tiny", "tiny-bad")
def test_grammar_end(subject, budget, conclude):
    conclude(sampling_params.grammar_end(subject, budget))


@pytest.mark.pairs("tiny", "tiny-self", "tiny-bad")
def test_rows(subject, budget, conclude):
    conclude(sampling_params.rows(subject, budget))


SLOW = ("T=2", "presence")  # much like others
CASES = [
    pytest.param(setting, id=setting, marks=[pytest.mark.slow] if setting in SLOW else [])
    for setting in sampling_laws.SETTINGS
]


@pytest.mark.statistical
@pytest.mark.pairs("micro", "micro-bad", "micro-self")
@pytest.mark.parametrize("setting", CASES)
def test_law(subject, budget, conclude, setting):
    conclude(sampling_laws.law(subject, budget, setting))
