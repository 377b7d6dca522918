"""Where outputs differ, and in whose words."""

from __future__ import annotations

import pytest

from harness.record import GenerationRow
from harness.report.differences import MOST, SHOWN, common_prefix, differences
from tests.records import made
from tests.test_report_page import differing, page_of
from tests.timed_rows import row


def test_a_difference_is_shown_from_where_it_begins() -> None:
    [found] = differences([differing(repeat=1), row(prompt="same")], ["a"])
    [one] = found.listed
    assert (one.kind, one.where, one.prefix) == ("FAIL", "chat, p1, repeat 2", 10)
    assert one.plain == [*map(str, range(110, 110 + SHOWN)), "..."]
    assert one.speculative == ["7", *map(str, range(111, 110 + SHOWN)), "..."]
    assert one.words == "token 10 is 7 (logit gap 1.5)"
    text = page_of(made([differing()]))
    assert "10 ids in common" in text
    assert "<mark>110</mark> 111 112" in text
    assert "<mark>7</mark> 111 112" in text
    assert text.count("<mark>") == 2


def test_the_end_of_an_output_is_part_of_it() -> None:
    short = differing(tokens=range(100, 110), finish_reason="eos", fault="stops early")
    [found] = differences([short, differing(tokens=range(100, 150), identical=False)], ["a"])
    assert found.listed[0].speculative == ["end (eos)"]
    assert found.listed[1].prefix == 50
    assert found.listed[1].plain == ["end (length)"]


@pytest.mark.parametrize(
    ("found", "lossy", "kind", "words"),
    [
        (differing(), False, "FAIL", "token 10 is 7 (logit gap 1.5)"),
        (differing(), True, "LOSSY", "token 10 is 7 (logit gap 1.5)"),
        (differing(fault="", near_tie="1e-6 apart"), False, "near tie", "1e-6 apart"),
        (differing(fault=""), False, "FAIL", "the outputs differ"),
        (differing(fault="", error="plain is off"), False, "ERROR", "plain is off"),
        (differing(identical=True), False, "FAIL", "token 10 is 7 (logit gap 1.5)"),
    ],
)
def test_the_record_has_the_word(found: GenerationRow, lossy: bool, kind: str, words: str) -> None:
    [of_a] = differences([found], ["a"], ["a"] if lossy else [])
    assert [(one.kind, one.words) for one in of_a.listed] == [(kind, words)]


def test_sampled_outputs_may_differ() -> None:
    assert differences([differing(identical=None, fault="")], ["a"]) == []


def test_of_very_many_the_first_are_shown_and_all_are_counted() -> None:
    rows = [differing(prompt=f"p{number}") for number in range(MOST + 5)]
    [found] = differences([*rows, differing(decoder="b")], ["a"])
    assert (found.total, len(found.listed)) == (MOST + 5, MOST)
    assert f"105 outputs not as plain decoding gives, the first {MOST} shown" in page_of(made(rows))


def test_common_prefixes() -> None:
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([1, 2, 3], [1, 5, 3]) == 1
