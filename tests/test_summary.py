"""The figures made of the rows of a measurement."""

from __future__ import annotations

import math

import pytest

from harness.bench.columns import columns
from harness.bench.comparison import baseline_of, compare
from harness.bench.row_figures import repetition
from harness.bench.summary import judge, summarise
from harness.record import GenerationRow
from harness.verdict import Status
from tests.timed_rows import row


def test_figures_against_values_by_hand() -> None:
    rows = [
        row(prompt="p1", plain_seconds=2.0, seconds=1.0, drafted=[3, 3], accepted=[3, 0]),
        row(prompt="p2", plain_seconds=1.0, seconds=2.0, drafted=[2], accepted=[1]),
        row(prompt="p3", plain_seconds=4.0, seconds=1.0),
    ]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx((2 * 0.5 * 4) ** (1 / 3))
    assert (found.slower, found.prompts) == (1, 3)
    assert found.acceptance == pytest.approx(4 / 8)
    assert found.length_over_rounds == pytest.approx((4 + 1 + 2) / 3)
    assert found.length_over_requests == pytest.approx(((4 + 1) / 2 + 2) / 2)
    assert found.plain_rate == pytest.approx(12 / 7)
    assert found.rate == pytest.approx(12 / 4)
    assert found.losslessness.status is Status.PASS
    assert not found.per_token


def test_two_identical_arms_have_no_speedup() -> None:
    rows = [row(prompt=f"p{i}", plain_seconds=i, seconds=i) for i in (1, 2, 3)]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert (found.speedup.low, found.speedup.value, found.speedup.high) == (1, 1, 1)
    assert found.slower == 0


def test_different_lengths_are_compared_per_token() -> None:
    [found] = summarise([row(tokens=[1, 2], near_tie="close")], ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx((2 / 4) / (1 / 2))
    assert found.per_token


def test_repeats_of_a_prompt_count_as_one() -> None:
    rows = [row(seconds=1.0), row(seconds=0.5, repeat=1)]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(math.sqrt(2 * 4))
    assert found.speedup.low is None


def test_decoders_without_rounds_have_no_acceptance() -> None:
    [found] = summarise([row()], ["a"])
    assert found.acceptance is found.length_over_rounds is found.length_over_requests is None


def test_rounds_that_drafted_nothing_count_as_target_calls() -> None:
    [found] = summarise([row(drafted=[0, 0], accepted=[0, 0])], ["a"])
    assert found.acceptance is None
    assert found.length_over_rounds == 1


def test_a_row_over_all_tasks_closes_the_list() -> None:
    rows = [row(d, task=t) for t in ("chat", "code") for d in ("a", "b")]
    found = [(s.task, s.decoder, s.prompts) for s in summarise(rows, ["b", "a"])]
    assert found[:2] == [("chat", "b", 1), ("chat", "a", 1)]
    assert found[-2:] == [("all", "b", 2), ("all", "a", 2)]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (row(), Status.PASS),
        (row(tokens=[1, 2, 9, 4], near_tie="close"), Status.PASS),
        (row(tokens=[1, 2, 9, 4], fault="far"), Status.FAIL),
        (row(tokens=[1, 2, 9, 4], identical=True), Status.FAIL),  # a row that contradicts itself
        (row(tokens=[], plain_tokens=[]), Status.ERROR),
        (row(tokens=[]), Status.FAIL),
        (row(tokens=[], near_tie="close"), Status.FAIL),
        (row(error="boom"), Status.ERROR),
        (row(identical=None), Status.INCONCLUSIVE),
    ],
)
def test_verdict_of_one_row(found: GenerationRow, status: Status) -> None:
    assert judge(columns([found]).table).status is status


def test_one_bad_row_decides() -> None:
    good, bad, broken = row(), row(tokens=[9], fault="far"), row(error="boom")
    assert judge(columns([good, bad, broken]).table).status is Status.FAIL
    assert judge(columns([good, broken]).table).status is Status.ERROR
    assert judge(columns([]).table).status is Status.INCONCLUSIVE
    assert judge(columns([good]).table, declared_lossy=True).status is Status.UNSUPPORTED


def test_repetition() -> None:
    assert repetition([1, 2, 3]) == 0
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([7] * 8) == pytest.approx(4 / 5)


def test_comparison_with_the_plain_arm_of_transformers() -> None:
    rows = [
        row("mine", "p1", plain_seconds=1.0, seconds=0.5),
        row("mine", "p2", plain_seconds=1.0, seconds=0.5),
        row("transformers-x", "p1", plain_seconds=2.0, seconds=1.0),
        row("transformers-y", "p1", plain_seconds=4.0, seconds=1.0, plain_tokens=[9, 2, 3, 4]),
    ]
    decoders = ["mine", "transformers-x", "transformers-y"]
    mine, x, y = compare(rows, decoders)
    assert baseline_of(decoders) == "transformers-x"
    assert (mine.plain.value, mine.speculative.value) == (pytest.approx(2), pytest.approx(4))
    assert mine.total == 1  # p2 has no counterpart
    assert (x.plain.value, x.speculative.value) == (pytest.approx(1), pytest.approx(2))
    assert (y.plain.value, y.same_text, y.total) == (pytest.approx(0.5), 0, 1)
    assert compare(rows, ["mine"]) == []
