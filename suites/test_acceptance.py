"""The rounds add up, and accept as often as the two laws allow."""

import pytest

from harness.checks import acceptance, greedy_drafts, self_draft


@pytest.mark.pairs("tiny", "tiny-self")
def test_identities(subject, budget, conclude):
    conclude(acceptance.identities(subject, budget))


@pytest.mark.statistical
@pytest.mark.pairs("tiny", "tiny-bad", "tiny-hostile")
def test_expected(subject, budget, conclude):
    conclude(acceptance.expected(subject, budget))


@pytest.mark.pairs("tiny-self", "micro-self")
def test_self_draft(subject, budget, conclude):
    conclude(self_draft.accepts_all(subject, budget))


@pytest.mark.pairs("tiny-gpt2-self")
def test_self_draft_positions(subject, budget, conclude):
    conclude(self_draft.accepts_all_by_position(subject, budget))


@pytest.mark.pairs("tiny", "tiny-bad", "tiny-gpt2", "tiny-window")
def test_greedy_drafts(subject, budget, conclude):
    conclude(greedy_drafts.greedy_drafts(subject, budget))
