"""Answers have the contract's form."""

import pytest

from harness.checks import contract


@pytest.mark.pairs("tiny", "micro", "tiny-bad")
def test_form(subject, budget, conclude):
    conclude(contract.form(subject, budget))


@pytest.mark.pairs("tiny")
def test_requests(subject, budget, conclude):
    conclude(contract.requests(subject, budget))


@pytest.mark.pairs("tiny")
def test_nothing(subject, budget, conclude):
    conclude(contract.nothing(subject, budget))
