"""What the records become, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import record
from harness.record import VerdictRow, Writer
from harness.report import formats
from harness.report.outcome import exit_status
from harness.report.render import render
from harness.verdict import Status
from tests.records import header, made, unwrapped, verdict
from tests.timed_rows import row


def test_torn_last_line_is_named_and_the_rest_is_rendered(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row(task="chat"))
        writer.add(row("b", task="chat"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    found = record.read(path)
    text = formats.terminal([render(found)])
    assert "line 3 is torn" in text
    assert "2.00x" in text
    assert exit_status([found]) == 3


def test_figures_come_out_as_they_were_measured() -> None:
    rows = [
        row(prompt=f"p{i}", plain_seconds=3.0, seconds=2.0, drafted=[3, 3], accepted=[2, 1])
        for i in range(2)
    ]
    text = formats.terminal([render(made(rows))])
    line, *_ = [line for line in text.splitlines() if line.startswith("chat")]
    expected = ["chat", "a", "PASS", "2/2", "1.50x", "[1.50,", "1.50]", "0/2", "50%", "2.50"]
    assert line.split()[: len(expected)] == expected
    assert "(here 2 in some rows) are too narrow" in text


def test_degenerate_text_is_marked() -> None:
    looping = [7] * 20
    text = formats.terminal([render(made([row(tokens=looping, plain_tokens=looping)]))])
    assert "94% !" in text


def test_near_ties_are_counted_and_explained() -> None:
    rows = [row(), row(prompt="p2", tokens=[1, 2, 3, 5], near_tie="logits 1e-06 apart")]
    text = formats.terminal([render(made(rows))])
    assert "PASS 1/2, 1 near tie" in text
    assert "a, p2: logits 1e-06 apart" in text
    assert exit_status([made(rows, decoders=["a"])]) == 0


def test_declared_lossy_decoder_is_shown_as_such() -> None:
    found = made([row()], decoders=["a"], options={"declared_lossy": ["a"]})
    text = formats.terminal([render(found)])
    assert "LOSSY 1/1" in text
    assert "lossy by design" in text
    assert "PASS" not in text
    assert exit_status([found]) == 3


def test_formats_show_the_same_figures() -> None:
    found = [render(made([row(), row("b", tokens=[9, 9, 9, 9], fault="far")]))]
    terminal, markdown = formats.terminal(found), formats.markdown(found)
    for text in ("2.00x", "PASS 1/1", "FAIL 0/1", "a, b", "b, p1: far"):
        assert text in terminal
        assert text in markdown
    assert "(2.00x) not lossless" in terminal
    assert "~~2.00x~~ not lossless" in markdown


def test_markdown_is_escaped() -> None:
    found = render(made([row(error="pipe | and _this_")]))
    assert "pipe \\| and \\_this\\_" in formats.markdown([found])


def test_busy_machine_is_noted() -> None:
    busy = made([row()], options={"load_average": 3.5})
    assert "load 3.5 on 2 cores" in formats.terminal([render(busy)])
    calm = made([row()], options={"load_average": 0.2})
    assert "busy" not in formats.terminal([render(calm)])


def test_several_records_are_several_sections() -> None:
    text = formats.terminal([render(made([row()])), render(made([row("b")]))])
    assert text.count("Speculative decoding: tiny\n") == 2


def test_verdicts_of_the_suites_are_counted() -> None:
    verdicts = [verdict(Status.PASS), verdict(Status.FAIL), verdict(Status.FAIL, "known: issue 1")]
    text = formats.terminal([render(made(verdicts=verdicts))])
    assert "suites/test_greedy.py::test_equal: because; likely fault: off by one" in text
    assert "(expected: known: issue 1)" in unwrapped(text)


def test_empty_record_says_so() -> None:
    assert "nothing was measured" in formats.terminal([render(made())])
    assert exit_status([made()]) == 3


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([verdict(Status.PASS)], 0),
        ([verdict(Status.PASS), verdict(Status.UNSUPPORTED)], 0),
        ([verdict(Status.PASS), verdict(Status.FAIL, "known")], 0),
        ([verdict(Status.PASS), verdict(Status.FAIL)], 1),
        ([verdict(Status.ERROR), verdict(Status.FAIL)], 1),
        ([verdict(Status.PASS), verdict(Status.ERROR)], 3),
        ([verdict(Status.PASS), verdict(Status.INCONCLUSIVE)], 3),
        ([verdict(Status.UNSUPPORTED)], 3),
    ],
)
def test_exit_status(found: list[VerdictRow], status: int) -> None:
    assert exit_status([made(verdicts=found, decoders=["a"])]) == status


def test_the_short_form_keeps_what_needs_a_look() -> None:
    rows = [row(), row("b", tokens=[9, 9, 9, 9], fault="far"), row("b", prompt="p2", error="boom")]
    found = render(made(rows, problems=["line 3 is torn"], options={"load_average": 3.5}))
    whole, brief = formats.terminal([found]), formats.terminal([found.brief])
    for text in ("2.00x", "b, p1: far", "boom", "line 3 is torn", "To see these failures again"):
        assert text in brief
    assert "load 3.5 on 2 cores" in brief
    assert "mean accepted length: tokens per target call" not in brief
    assert "mean accepted length: tokens per target call" in unwrapped(whole)
    assert found.brief.brief == found.brief
