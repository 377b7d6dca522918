"""Where a token stands in its round, by hand."""

from __future__ import annotations

import pytest

from harness.checks.places import AFTER, NAMES, PLACE, ROLE, places
from harness.contract import Round


def labels(tokens: int, *rounds: tuple[int, int]) -> dict[str, list[int]]:
    """Of an output of so many tokens and (drafted, accepted) rounds."""
    return places([0] * tokens, [Round(drafted, accepted) for drafted, accepted in rounds])


def test_no_rounds_no_labels() -> None:
    assert places([1, 2], None) == {}


def test_by_hand() -> None:
    """Two of two accepted and a bonus; one of three; none of two; then one more."""
    assert labels(7, (2, 2), (3, 1), (2, 0), (1, 0)) == {
        PLACE: [0, 1, 2, 0, 1, 0, 0],
        ROLE: [0, 0, 1, 0, 0, 0, 0],
        AFTER: [-1, -1, -1, 1, -1, 0, 0],
    }


def test_a_round_without_drafts_is_neither() -> None:
    """It has no draft and no bonus, and the round after it is after no block."""
    assert labels(5, (1, 1), (0, 0), (2, 0), (0, 0)) == {
        PLACE: [0, 1, 0, 0, 0],
        ROLE: [0, 1, -1, 0, -1],
        AFTER: [-1, -1, 1, -1, 0],
    }


@pytest.mark.parametrize(("tokens", "place"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3])])
def test_the_last_round_may_be_cut(tokens: int, place: list[int]) -> None:
    found = labels(tokens, (3, 3))
    assert found[PLACE] == place
    assert found[ROLE] == [int(i == 3) for i in place]


def test_tokens_that_no_round_accounts_for_have_no_label() -> None:
    assert labels(4, (1, 0)) == {
        PLACE: [0, -1, -1, -1],
        ROLE: [0, -1, -1, -1],
        AFTER: [-1, -1, -1, -1],
    }
    assert labels(2) == {PLACE: [-1, -1], ROLE: [-1, -1], AFTER: [-1, -1]}


def test_a_label_is_known_before_its_token() -> None:
    """What is accepted later does not change the labels of the tokens before."""
    for last in range(4):
        found = labels(3 + last + 1, (3, 2), (3, last))
        assert [values[:4] for values in found.values()] == [
            [0, 1, 2, 0], [0, 0, 0, 0], [-1, -1, -1, 0],
        ]  # fmt: skip


def test_labels_have_names() -> None:
    found = labels(6, (2, 2), (2, 1), (2, 0))
    for name in (ROLE, AFTER):
        assert {label for label in found[name] if label >= 0} == NAMES[name].keys()
