"""The report as a page: what the other formats say, all of it escaped."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.record import GenerationRow, Record, Writer
from harness.report import formats, report_page, svg
from harness.report.__main__ import main
from harness.report.document import Struck, Table
from harness.report.render import render
from tests.records import QUICK, made
from tests.test_conformance import HOSTILE, Outline
from tests.test_costs import timed
from tests.timed_rows import row

DECODERS = ["a", "lossy", "transformers-x", "wrong"]
TASKS = ("chat", "code")


def measured(**changes: Any) -> Record:
    """Two tasks of two prompts by four decoders: one is wrong, one lossy, one silent on costs."""
    rows: list[GenerationRow] = []
    for number, decoder in enumerate(DECODERS):
        for task in TASKS:
            for prompt in range(2):
                given: dict[str, Any] = {
                    "decoder": decoder,
                    "task": task,
                    "prompt": f"{task}-{prompt}",
                    "seconds": 1.1 + 0.1 * number + 0.05 * prompt,
                    "parts": {"prompt": 0.2, "draft": 0.2 + 0.1 * prompt, "verify": 0.5},
                }
                if decoder == "transformers-x":
                    given |= {"drafted": None, "accepted": None, "parts": {}, "plain_parts": {}}
                if decoder == "wrong":
                    given |= {"tokens": (1, 2, 9, 4), "fault": f"token 2 is 9, gap 0.{prompt}"}
                rows.append(timed(**given))
    options = {"temperature": 0.0, "draft_tokens": 3, "declared_lossy": ["lossy"]}
    return made(rows, decoders=DECODERS, options=options, **changes)


def page_of(*records: Record) -> str:
    return report_page.html([render(record) for record in records])


class Cells(html.parser.HTMLParser):
    """Tables of a page, as rows of (text, attributes of the cell)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, dict[str, str | None]]]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(("", dict(attrs)))
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            text, attributes = self.tables[-1][-1].pop()
            self.tables[-1][-1].append((text + data, attributes))


def texts(text: str) -> list[list[list[str]]]:
    return [[[cell for cell, _ in line] for line in table] for table in Cells(text).tables]


def of_markdown(text: str) -> list[list[list[str]]]:
    """Tables of a Markdown report, without what marks and escapes."""
    tables: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[:1] + lines[2:]]
            plain = [[re.sub(r"~~|\\(?=\W|_)", "", cell).strip() for cell in row] for row in cells]
            tables.append(plain)
    return tables


def drawings(text: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def differing(**changes: Any) -> GenerationRow:
    given: dict[str, Any] = {
        "plain_tokens": range(100, 150),
        "tokens": [*range(100, 110), 7, *range(111, 150)],
        "plain_finish_reason": "length",
        "finish_reason": "length",
        "fault": "token 10 is 7 (logit gap 1.5)",
    }
    return row(**given | changes)


# Tables, notes, facts


def test_the_numbers_are_those_of_the_markdown_report() -> None:
    record = measured()
    found = texts(page_of(record))
    assert found == of_markdown(formats.markdown([render(record)]))
    assert [len(table) for table in found] == [13, 5, 10, 10, 10, 10, 10, 5]
    assert "1.78x [1.74, 1.82]" in str(found)


def test_struck_figures_stay_struck_and_have_no_place_in_an_order() -> None:
    record = measured()
    tables: list[Table] = render(record).tables
    struck = [cell for t in tables for line in t.rows for cell in line if isinstance(cell, Struck)]
    text = page_of(record)
    assert len(struck) == 92
    assert re.findall(r"<s>(.*?)</s> <small>(.*?)</small>", text) == [
        (cell.text, cell.reason) for cell in struck
    ]
    cells = [cell for table in Cells(text).tables for line in table for cell in line]
    for said, attributes in cells:
        reasons = ("not lossless", "lossy by design")
        assert (attributes.get("data-sort") == "") == said.endswith(reasons), said


def test_verdicts_have_their_colours() -> None:
    text = page_of(measured())
    for kind, verdict in (("PASS", "PASS 2/2"), ("FAIL", "FAIL 0/2"), ("xfail", "LOSSY 2/2")):
        assert f'<span class="mark {kind}">{verdict}</span>' in text
    assert '<span class="mark FAIL">contradicted</span>' in text
    decoy = page_of(made([row("FAIL")], decoders=["FAIL"]))
    assert 'mark FAIL"' not in decoy, "a decoder of that name is no verdict"


def test_notes_and_facts_are_all_there() -> None:
    record = measured(command="python -m harness.report --seed 3", problems=["line 9 is torn"])
    section, words = render(record), Outline(page_of(record)).words
    lines = [line for notes in section.notes for line in notes.lines]
    values = [value for _, value in section.facts]
    assert lines
    assert "python -m harness.report --seed 3" in values
    for text in (*lines, *values, "line 9 is torn", "Linux, 2 cores, 1 threads", "python 3.12"):
        assert text in words


def test_several_records_are_several_sections_with_ids_of_their_own() -> None:
    outline = Outline(page_of(measured(), measured()))
    assert outline.links[:2] == ["#r1", "#r2"]
    assert {"r1", "r2"} <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.links) <= {f"#{name}" for name in outline.ids}


def test_an_empty_record_says_so() -> None:
    text = page_of(made())
    assert "nothing was measured" in text
    assert drawings(text) == []


# What comes from a record


LONG = f"{HOSTILE} {'x' * 300}"


def hostile() -> Record:
    rows = [
        row(LONG, LONG, task=LONG, tokens=(1, 9, 9, 9), fault=LONG),
        row(LONG, "p2", task="chat", error=LONG),
        timed(decoder=LONG, prompt="p3", near_tie=LONG, tokens=(1, 2, 3, 9)),
        timed(decoder=LONG, prompt="p4", finish_reason=LONG, identical=False),
    ]
    return made(
        rows,
        decoders=[LONG],
        command=LONG,
        versions={LONG: LONG},
        machine={"system": LONG},
        problems=[LONG],
    )


def test_all_that_a_record_says_is_escaped() -> None:
    text = page_of(hostile(), hostile())
    outline = Outline(text)
    assert outline.open == []
    assert outline.tags.count("script") == 1
    assert outline.words.count("<script>alert(1)</script>") >= 30
    assert text.count("<script>") == 1


def test_nothing_is_fetched_and_only_the_pages_own_script_runs() -> None:
    text = page_of(hostile())
    links = Outline(text).links + re.findall(r"url\((.*?)\)", text)
    assert all(link.startswith("#") for link in links)
    assert "@import" not in text
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "name",
    ["a$b$", r"$\frac{", "<b>&amp;\"'", "\x1b[31m\x00", "名前", "x" * 300, "two\nlines", "%s"],
)
def test_any_name_can_be_drawn(name: str) -> None:
    record = made([timed(decoder=name, task=name)], decoders=[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = drawings(page_of(record))
    assert len(found) == 4
    for drawing in found:
        shown = svg.shown(name)
        assert len(shown) <= svg.LONGEST
        assert shown in Outline(drawing).words


# The command


def test_rendering_writes_or_prints_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = measured()
    path = tmp_path / "record.jsonl"
    with Writer(path, record.header) as writer:
        for found in record.generations:
            writer.add(found)
    assert main(["--from", str(path), "--format", "html", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"written: {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text() == page_of(record) + "\n"
    assert main(["--from", str(path), str(path), "--format", "html"]) == 1
    assert capsys.readouterr().out == page_of(record, record) + "\n"


def test_a_run_writes_the_page(tmp_path: Path) -> None:
    arguments = [*QUICK, "--decoder", "reference", "--prompts", "1", "--format", "html"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "PASS 1/1" in text
    assert len(drawings(text)) == 4
    assert not (tmp_path / "report.md").exists()


def test_a_long_record_gives_a_page_that_can_be_opened() -> None:
    rows: Sequence[GenerationRow] = [
        differing(decoder=decoder, task=task, prompt=f"p{number}", seconds=1 + number % 7 / 10)
        for number in range(1250)
        for task in ("chat", "code", "math", "creative")
        for decoder in DECODERS
    ]
    assert len(rows) == 20_000
    text = page_of(made(rows, decoders=DECODERS))
    assert "FAIL 0/5000" in text
    assert text.count("5000 outputs not as plain decoding gives") == 4
    assert len(text) < 1_000_000
