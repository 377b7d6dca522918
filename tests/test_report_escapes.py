"""What a record says is no markup, no command and no formula in any format of the report."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from harness.record import Record
from harness.report import formats, github
from harness.report.document import Notes, Section, Struck, Table
from harness.report.render import render
from harness.report.standings import section, standings
from tests.records import made
from tests.test_conformance import found
from tests.test_conformance import made as judged
from tests.timed_rows import row

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "a | b\n| c | d |\n\n# heading",
    "```\n# out of the fence\n",
    "[click](javascript:alert(1))",
    "\x1b[2J\x07::error::mine\n::stop-commands::x",
    '=HYPERLINK("http://127.0.0.1","x")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    r"\input{/etc/passwd} % \\ & $x$ #1",
    "{{ 7 * 7 }} {% raw %}",
    "a\u2028b\u0085c",
]


def benchmark(words: str) -> Record:
    """A record in which everything that may be words is these."""
    rows = [
        row(words, words, task=words),
        row(words, "p2", task=words, error=words),
        row(words, "p3", task=words, tokens=(1, 9, 9, 9), fault=words, finish_reason=words),
    ]
    return made(
        rows,
        decoders=[words],
        command=words,
        versions={words: words},
        machine={"system": words},
        problems=[words],
    )


def suites(words: str) -> Record:
    failed = found("FAIL", words, decoder=words, message=words, likely_fault=words, repro=words)
    return judged(failed, command=words, versions={words: words}, decoders=[words])


def documents(words: str) -> list[list[Section]]:
    return [[render(benchmark(words))], [section(standings([suites(words)]))]]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_table_of_markdown_keeps_its_lines_and_columns(words: str) -> None:
    table = Table(words, [words, "b"], [[words, Struck(words, words)], ["1", "2"]])
    lines = formats.markdown_table(table).split("\n")
    assert len(lines) == 4
    assert all(line.replace("\\|", "").count("|") == 3 for line in lines)


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("kind", [0, 1], ids=["benchmark", "suites"])
def test_markdown_has_no_markup_of_a_record(words: str, kind: int) -> None:
    [harmless, text] = (
        formats.markdown(documents(of)[kind]).encode(errors="strict").decode()
        for of in ("harmless", words)
    )
    prose = re.sub(r"^(`{3,})sh\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    for mark in ("<script", "<img", "](java"):
        assert mark not in prose.replace(f"\\{mark}", "")
    assert text.count("\n# ") == harmless.count("\n# ")
    assert len(text.split("\n")) == len(harmless.split("\n"))


def test_code_stays_within_its_fence() -> None:
    told = Section("a", [], notes=[Notes("again", ["x", "```", "# heading"], verbatim=True)])
    assert "````sh\nx\n```\n# heading\n````" in formats.markdown([told])


@pytest.mark.parametrize("words", HOSTILE)
def test_the_summary_of_github_has_no_markup_of_a_record(words: str) -> None:
    [standing] = standings([suites(words)])
    text = github.summary(standing, [words], [words])
    code = formats.fenced(words, "python")
    outside = text.replace(code, "")
    for mark in ("<script", "<img", "](java"):
        assert mark not in outside.replace(f"\\{mark}", "").replace(f"`{words}`", "")
    assert "\n# heading" not in outside
    for line in github.marks(standing, [words]):
        assert "\n" not in line
        assert line.startswith("::error title=")


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("kind", [0, 1], ids=["benchmark", "suites"])
def test_a_terminal_is_given_no_commands(words: str, kind: int) -> None:
    text = formats.terminal(documents(words)[kind])
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not [line for line in text.split("\n") if line.startswith("::")]


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("kind", [0, 1], ids=["benchmark", "suites"])
def test_a_spreadsheet_computes_nothing(words: str, kind: int) -> None:
    text = formats.text_of("csv", documents(words)[kind])
    head, *rows = csv.reader(io.StringIO(text))
    assert rows
    for cell in [*head, *(cell for line in rows for cell in line)]:
        number = cell.replace(".", "").replace("e-", "").lstrip("-").isdigit()
        assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("kind", [0, 1], ids=["benchmark", "suites"])
def test_latex_has_no_commands_of_a_record(words: str, kind: int) -> None:
    text = formats.text_of("latex", documents(words)[kind])
    code = [line for line in text.split("\n") if not line.startswith("%")]  # and no comments
    assert "\\input{" not in "\n".join(code)
    assert "\n# heading" not in text
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("kind", [0, 1], ids=["benchmark", "suites"])
def test_json_and_html_say_what_the_record_says(words: str, kind: int) -> None:
    assert json.loads(formats.text_of("json", documents(words)[kind]))
    page = formats.text_of("html", documents(words)[kind])
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "49" not in page or "7 * 7" not in words
    assert page.encode()
