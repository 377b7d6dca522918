"""Rows as columns say what the rows say, in their order."""

from __future__ import annotations

import numpy as np

from harness.bench.columns import STATUSES, by_unit, columns, groups, ratios
from harness.bench.row_figures import cost, plain_cost, ratios_by_prompt, timeable, verdict_of
from harness.record import GenerationRow
from tests.timed_rows import row


def mixed() -> list[GenerationRow]:
    return [
        row(prompt="p2", plain_seconds=3.0, drafted=[3, 3], accepted=[1, 2]),
        row("b", prompt="p2", tokens=[1, 2], fault="short"),
        row(prompt="p1", task="code", tokens=[1, 2, 3, 5], near_tie="logits 1e-06 apart"),
        row(prompt="p2", repeat=1, seconds=4.0, drafted=[2], accepted=[1, 1]),
        row(prompt="p3", error="boom", tokens=[]),
        row(prompt="p4", identical=None, parts={"draft": 0.25, "verify": 0.5}),
    ]


def test_figures_are_those_of_the_rows() -> None:
    rows = mixed()
    table = columns(rows).table
    assert table["timeable"].tolist() == list(map(timeable, rows))
    assert [STATUSES[number] for number in table["verdict"]] == list(map(verdict_of, rows))
    timed = [found for found in rows if timeable(found)]
    assert table.timed["cost"].tolist() == list(map(cost, timed))
    assert table.timed["plain_cost"].tolist() == list(map(plain_cost, timed))
    assert table["sampled"].tolist() == [False] * 5 + [True]
    assert table["parts"].tolist() == [0] * 5 + [0.75]
    assert table["draft_part"].tolist() == [0] * 5 + [0.25]
    assert columns(rows).rows_of(table.timed) == timed


def test_one_figure_a_prompt_in_the_order_of_the_rows() -> None:
    rows = [found for found in mixed() if found.decoder == "a" and timeable(found)]
    expected = list(ratios_by_prompt(rows, plain_cost, cost).values())
    np.testing.assert_allclose(ratios(columns(rows).table), expected)
    table = columns(rows).table
    np.testing.assert_allclose(by_unit(table, np.array([2.0, 5.0, 8.0, 1.0])), [4.0, 5.0, 1.0])


def test_rounds_of_rows_that_tell_as_many_drafted_as_accepted() -> None:
    found = columns(mixed())
    assert found.rounds.row.tolist() == [0, 0]
    of = found.rounds.of(found.of_decoder("a"))
    assert (of.drafted.tolist(), of.accepted.tolist()) == ([3, 3], [1, 2])
    assert len(found.rounds.of(found.of_decoder("b")).row) == 0
    assert len(found.of_decoder("nobody")) == 0


def test_groups_are_task_by_task_and_then_all() -> None:
    found = columns(mixed())
    names = [(d, t, len(of)) for d, t, of in groups(found, found.table, ["b", "a", "c"])]
    assert names == [
        ("b", "chat", 1),
        ("a", "chat", 4),
        ("a", "code", 1),
        ("b", "all", 1),
        ("a", "all", 5),
    ]


def test_columns_are_kept_for_the_same_rows_only() -> None:
    rows = mixed()
    first = columns(rows)
    assert columns(rows) is first
    assert columns(list(rows)) is first
    rows[0] = row(prompt="another")
    assert columns(rows) is not first
    rows.pop()
    assert len(columns(rows).table) == 5
    assert len(columns([]).table) == 0
