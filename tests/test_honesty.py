"""What to doubt in rows: text in loops, counts that do not add up, speculation that is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.adapters import load_decoder
from harness.bench.honesty import ending_loop, of_counts, of_speculation, of_text
from harness.bench.measure import Settings, measure, schedule
from harness.bench.workload import load_workload
from harness.models import load_pair
from harness.record import GenerationRow
from harness.report import formats
from harness.report.render import render
from tests.records import made, unwrapped
from tests.timed_rows import row

K = 3


@pytest.mark.parametrize(
    ("tokens", "length"),
    [
        ([], 0),
        ([7] * 7, 0),
        ([7] * 8, 8),
        ([1, 2, 3] + [7] * 9, 9),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3], 9),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1], 10),
        ([1, 2, 3, 1, 2, 3, 4, 5, 6], 0),
        ([1, 2, 1, 2, 1, 2, 1, 2, 9], 0),
        ([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8], 0),
    ],
)
def test_a_loop_at_the_end(tokens: list[int], length: int) -> None:
    assert ending_loop(tokens) == length


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5), min_size=3, max_size=6))
def test_a_cycle_three_times_is_a_loop_whatever_came_before(
    before: list[int], period: list[int]
) -> None:
    assert ending_loop(before + 3 * period) >= 3 * len(period)


def test_degenerate_text_is_told_once_for_all_decoders_that_share_it() -> None:
    looping = [1, 2] * 10
    rows = [row(name, tokens=looping, plain_tokens=looping) for name in ("a", "b")]
    repeated, loops = of_text(rows, eos=False)
    assert "chat: 88% of the 4-grams" in repeated
    assert "chat: 1 of 1 outputs end in a loop" in loops
    assert list(of_text([row()], eos=False)) == []


def test_an_end_that_never_came() -> None:
    cut = [row(plain_finish_reason="length")]
    (found,) = of_text(cut, eos=True)
    assert "EOS never came in 1 of 1 outputs, the longest cut at 4 tokens" in found
    assert list(of_text(cut, eos=False)) == []
    ended = [row(task=task, plain_finish_reason="eos") for task in ("code", "math")]
    assert list(of_text([*cut, *ended], eos=True)) == []
    assert list(of_text([row()], eos=True)) == []  # an older record does not say


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drafted": [3], "accepted": [2]}, "the rounds account for 3 tokens, the output has 4"),
        ({"drafted": [3, 3], "accepted": [3, 0]}, "the rounds before the last one account for 4"),
        ({"drafted": [4], "accepted": [3]}, "round 0 drafted 4 tokens, K is 3"),
        ({"drafted": [3], "accepted": [3, 0]}, "1 drafted and 2 accepted"),
        ({"counts": {"tokens": 5}}, "miscounts the tokens of its speculative arm (p1: 5 for 4)"),
        ({"plain_counts": {"tokens": 3}}, "miscounts the tokens of its plain arm"),
        ({"counts": {"target_calls": 0}}, "4 tokens of 0 target calls, K is 3"),
        ({"plain_counts": {"target_calls": 2}}, "4 tokens of 2 target calls, K is 0"),
        ({"parts": {"draft": 0.6, "verify": 0.5}}, "1.1 s of 1 s"),
        ({"drafted": [3], "accepted": [3], "counts": {"accepted": 4}}, "accepted tokens is not"),
        ({"first_seconds": 1.5}, "the first token of a stream takes 1.5 s"),
        ({"plain_first_seconds": 2.5}, "in the plain arm the first token"),
    ],
)
def test_an_identity_that_does_not_hold_is_told(changes: dict[str, Any], words: str) -> None:
    (found,) = of_counts([row(**changes)], K)
    assert found.startswith("a: ")
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"drafted": [3], "accepted": [3]},
        {"drafted": [3, 3], "accepted": [2, 3]},  # the last round is cut by the end
        {"counts": {"tokens": 4, "target_calls": 1}, "plain_counts": {"target_calls": 3}},
        {"parts": {"prompt": 0.2, "draft": 0.3, "verify": 0.5}},
        {"first_seconds": 0.5, "plain_first_seconds": 0.5},
    ],
)
def test_what_adds_up_is_not_doubted(changes: dict[str, Any]) -> None:
    assert list(of_counts([row(**changes)], K)) == []


def test_many_rows_with_one_doubt_are_one_line() -> None:
    rows = [row(prompt=f"p{i}", counts={"tokens": 9}) for i in range(5)]
    (found,) = of_counts(rows, K)
    assert "p0: 9 for 4; p1: 9 for 4; p2: 9 for 4, and 2 more" in found


def told(drafted: Sequence[int], accepted: Sequence[int], **rest: Any) -> GenerationRow:
    return row(drafted=list(drafted), accepted=list(accepted), **rest)


def test_a_decoder_that_only_says_that_it_speculates() -> None:
    nothing = told([0] * 4, [0] * 4)
    (found,) = of_speculation([nothing], [])
    assert found == "a reports speculation, but does not speculate: all 4 rounds drafted 0 tokens"
    rejected = told([3] * 12, [0] * 12, tokens=range(12), plain_tokens=range(12))
    (alone,) = of_speculation([rejected], [])
    assert "none of the 36 drafts of a was accepted" in alone
    (beside,) = of_speculation([rejected], [told([3], [1], decoder="b")])
    assert "a reports speculation, but does not speculate" in beside
    assert "b has 33% accepted" in beside
    counted = told([3] * 8, [1] * 8, tokens=range(16), counts={"target_calls": 16})
    (calls,) = of_speculation([counted], [])
    assert "8 drafts count as accepted, and 16 target calls gave 16 tokens" in calls


def test_one_that_speculates_or_says_nothing_is_not_named() -> None:
    assert list(of_speculation([row()], [])) == []
    assert list(of_speculation([told([3, 3], [1, 1], counts={"target_calls": 2})], [])) == []
    # Two rounds, a call for the prompt and one more: too few tokens to say.
    assert list(of_speculation([told([3, 3], [1, 1], counts={"target_calls": 4})], [])) == []
    assert list(of_speculation([told([3], [0])], [])) == []  # too few drafts to say


@pytest.mark.parametrize("name", ["reference", "reference-ngram", "reference-tree"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_to_be_said_against_the_reference(name: str, temperature: float) -> None:
    pair = load_pair("tiny")
    settings = Settings(24, K, pair.vocab_size, temperature, seed=1)
    trials = schedule([name], load_workload(pair, ["chat"], 4, 24), 1, 1)
    decoders = {name: load_decoder(name, pair)}
    rows = list(measure(decoders, trials, settings, lambda *_: ("", {})))
    assert list(of_counts(rows, K)) == []
    assert list(of_speculation(rows, [])) == []


def test_doubts_stand_in_the_report() -> None:
    found = made([row(counts={"tokens": 9}, drafted=[3], accepted=[3])], decoders=["a"])
    text = unwrapped(formats.terminal([render(found)]))
    assert "What to doubt - a: it miscounts the tokens of its speculative arm" in text
    assert "What to doubt" not in formats.terminal([render(made([row()], decoders=["a"]))])
