"""Reports for programs, papers and GitHub; and records that cannot be read among those that can."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness import record
from harness.bench import render_scale
from harness.record import GenerationRow, Record, Writer
from harness.report import formats, github_marks
from harness.report.__main__ import main
from harness.report.arguments import FORMATS
from harness.report.data import SCHEMA, csv_text, json_text
from harness.report.document import Section, Struck, Table
from harness.report.latex import escaped, latex
from harness.report.render import render
from harness.report.standings import section, standings
from harness.verdict import Status
from tests.records import header, made, one_line, verdict
from tests.test_conformance import MIXED
from tests.test_conformance import made as of_suites
from tests.test_costs import timed
from tests.test_report_page import hostile, measured
from tests.timed_rows import row

NASTY = r"a_b & 50% $x$ {y} ~z ^2 \input{/etc/passwd} #1 <b> | [q] *" + "\n\x07"


def written(path: Path, found: Record) -> Path:
    with Writer(path, found.header) as writer:
        for each in (*found.verdicts, *found.generations):
            writer.add(each)
    return path


# JSON


def test_json_has_the_figures_of_the_tables_and_a_schema() -> None:
    document = [render(measured())]
    found = json.loads(json_text(document))
    assert (found["kind"], found["schema"]) == ("report", SCHEMA)
    [only] = found["sections"]
    assert set(only["figures"]) == {"speedups", "against_plain", "costs", "claims"}
    [speedups, against, *_] = document[0].tables
    assert len(only["figures"]["speedups"]) == len(speedups.rows)
    assert len(only["figures"]["against_plain"]) == len(against.rows)
    first = only["figures"]["speedups"][0]
    value, low, high = (first["speedup"][name] for name in ("value", "low", "high"))
    assert f"{value:.2f}x [{low:.2f}, {high:.2f}]" == speedups.rows[0][3]
    assert first["losslessness"]["status"] == "PASS"
    assert only["facts"]["started"] == measured().header.started


def test_what_is_struck_in_a_table_has_its_objection_in_json() -> None:
    found = json.loads(json_text([render(measured())]))["sections"][0]["figures"]["speedups"]
    objections = {line["decoder"]: line["objection"] for line in found}
    assert objections["wrong"] == "not lossless"
    assert objections["lossy"] == "lossy by design"
    assert objections["a"] == ""


def test_figures_that_are_no_numbers_are_null() -> None:
    found = json.loads(json_text([render(made([row(error="no memory")]))]))
    [line] = found["sections"][0]["figures"]["speedups"]
    assert (line["speedup"], line["rate"], line["acceptance"]) == (None, None, None)


# CSV


def lines_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_line_a_decoder_and_task() -> None:
    document = [render(measured()), render(measured())]
    lines = lines_of(csv_text(document))
    assert len(lines) == 2 * len(document[0].tables[0].rows)
    assert [(line["task"], line["decoder"]) for line in lines[:2]] == [
        ("chat", "a"),
        ("chat", "lossy"),
    ]
    first = lines[0]
    assert float(first["speedup_low"]) < float(first["speedup"]) < float(first["speedup_high"])
    assert (first["losslessness_status"], first["objection"]) == ("PASS", "")
    assert first["started"] == measured().header.started


def test_csv_holds_whatever_a_name_is_made_of() -> None:
    name = 'a,"b"\n=c'
    lines = lines_of(csv_text([render(made([row(name)], decoders=[name]))]))
    assert [line["decoder"] for line in lines] == [name]


def test_csv_of_suites_has_a_line_a_suite() -> None:
    lines = lines_of(csv_text([section(standings([of_suites(*MIXED)]))]))
    assert [(line["suite"], line["PASS"], line["xfail"]) for line in lines][:2] == [
        ("greedy", "2", "1"),
        ("distribution", "0", "0"),
    ]


def test_an_empty_record_has_no_lines() -> None:
    assert lines_of(csv_text([render(made())])) == []


# LaTeX


def without_escapes(text: str) -> str:
    """What is left of LaTeX once all that is escaped or a known command is gone."""
    text = re.sub(r"^%.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\text\w+\{\}|\\[&%$#_{}]|\{[-*\[\]]\}", "", text)
    known = r"begin|end|centering|caption|resizebox|toprule|midrule|bottomrule|emph|ifdim|width"
    return re.sub(rf"\\({known}|linewidth|else|fi)\b", "", text)


@pytest.mark.parametrize("make", [measured, hostile])
def test_latex_is_balanced_and_all_is_escaped(make: Any) -> None:
    document = [render(make())]
    text = latex(document)
    tables = document[0].tables
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(tables)
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    expected = [len(table.columns) for table in tables for _ in (0, *table.rows)]
    assert [len(re.findall(r"(?<!\\)&", line)) + 1 for line in rows] == expected
    rest = without_escapes(text)
    assert rest.count("{") == rest.count("}")
    assert not re.search(r"[$#_^~|<]", rest)
    assert "\\" not in re.sub(r" \\\\$", "", rest, flags=re.MULTILINE), "a command of its own"
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(f"\\{rule}") == len(tables)


def test_nothing_in_a_cell_is_latex() -> None:
    table = Table(NASTY, ["column", NASTY], [[NASTY, Struck("1.50x", "not lossless")]])
    text = latex([Section(NASTY, [("command", "a\n\\evil")], [table])])
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert "\\evil" in comments[1]
    assert "\\evil" not in text.replace(comments[1], "")
    assert "\\input{/etc" not in text.replace(comments[1], "")
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"(1.50x) \emph{not lossless} \\" in text
    assert "\x07" not in text


def test_a_row_cannot_begin_with_an_option_of_the_last_one() -> None:
    assert escaped("[2cm]") == "{[}2cm{]}"
    assert escaped("*x") == "{*}x"
    assert escaped("--") == "{-}{-}"


# GitHub


def test_a_summary_is_added_and_what_is_wrong_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    path = written(tmp_path / "record.jsonl", measured())
    assert main(["--from", str(path), "--format", "github"]) == 1
    text = page.read_text()
    assert text.startswith("before\n# Speculative decoding: tiny\n")
    [mark] = capsys.readouterr().out.splitlines()
    assert mark.startswith("::error title=FAIL wrong::chat, chat-0: token 2 is 9, gap 0.0 (and 3")


def test_without_a_summary_file_it_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    path = written(tmp_path / "record.jsonl", of_suites(*MIXED))
    assert main(["--conformance", str(path), "--format", "github"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# Conformance of a"
    assert lines[-1].startswith("::error title=INCONCLUSIVE")


def test_where_nothing_is_wrong_nothing_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    path = written(tmp_path / "record.jsonl", made([row()], decoders=["a"]))
    assert main(["--from", str(path), "--format", "github"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["--claims", str(path), "--format", "github"]) == 0
    assert "Greedy output is unchanged" in (tmp_path / "summary.md").read_text()


def test_errors_are_warnings_and_lines_stay_one() -> None:
    broken = made([row(error="first\nsecond: 100%")], decoders=["a:b,c"], problems=["torn"])
    rows = [row("a:b,c", error="first\nsecond: 100%")]
    found = github_marks.marks([made(rows, decoders=["a:b,c"], problems=broken.problems)])
    assert found == [
        "::warning title=ERROR a%3Ab%2Cc::chat, p1: first%0Asecond: 100%25",
        "::warning title=record::torn",
    ]
    of_suite = github_marks.marks([made(verdicts=[verdict(Status.FAIL)])])
    assert of_suite == ["::error title=FAIL a::suites/test_greedy.py::test_equal: because"]
    assert github_marks.marks([made(verdicts=[verdict(Status.FAIL, "known")])]) == []


# All formats


@pytest.mark.parametrize("name", sorted(formats.SUFFIXES))
def test_every_format_is_written_and_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in FORMATS
    path = str(written(tmp_path / "record.jsonl", measured()))
    assert main(["--from", path, "--format", name, "--out", str(tmp_path)]) == 1
    text = (tmp_path / formats.file_name(name, "report")).read_text()
    capsys.readouterr()
    assert main(["--from", path, "--format", name]) == 1
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", sorted(formats.SUFFIXES))
def test_every_format_takes_what_is_hostile_and_what_is_empty(name: str) -> None:
    for found in (hostile(), made()):
        assert formats.text_of(name, [render(found)]) is not None


# Records that cannot be read


@pytest.fixture
def good(tmp_path: Path) -> str:
    return str(written(tmp_path / "good.jsonl", made([row(), row("b")])))


def damaged(path: Path, kind: str) -> str:
    lines = written(path, made([row()])).read_bytes().splitlines(keepends=True)
    made_of = {
        "empty": b"",
        "header torn": lines[0][:50],
        "no header": b"".join(lines[1:]),
        "binary": bytes(range(256)),
        "other schema": lines[0].replace(b'"schema":1', b'"schema":9'),
        "unknown schema": b'{"kind":"header","schema":"next","all":"else"}\n' + lines[1],
    }
    path.write_bytes(made_of[kind])
    return str(path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "its first line is no header"),
        ("header torn", "its first line is no header"),
        ("no header", "its first line is no header"),
        ("binary", "its first line is no header"),
        ("other schema", "has schema 9, this version reads 1"),
        ("unknown schema", "has schema next, this version reads 1"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_used(
    kind: str, words: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = damaged(tmp_path / "bad.jsonl", kind)
    assert main(["--from", bad, good]) == 3
    captured = capsys.readouterr()
    assert captured.err.startswith(f"left out: {bad}")
    assert words in captured.err
    assert "PASS 1/1" in captured.out
    assert "Records left out" in captured.out
    assert main(["--from", bad]) == 2
    assert words in one_line(capsys.readouterr().err)


def test_a_directory_and_a_missing_file_are_named(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", good, str(tmp_path), str(tmp_path / "none.jsonl")]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert ["Is a directory" in lines[0], "No such file" in lines[1]] == [True, True]
    assert main(["--from", str(tmp_path), str(tmp_path / "none.jsonl")]) == 2
    assert "nor can 1 more be read" in one_line(capsys.readouterr().err)


def test_a_failure_is_not_hidden_by_a_record_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "wrong.jsonl", made([row(tokens=(9, 9, 9, 9), fault="far")]))
    assert main(["--from", str(path), str(tmp_path / "none.jsonl")]) == 1
    assert main(["--conformance", str(path), str(tmp_path / "none.jsonl")]) == 1
    assert main(["--claims", str(path), str(tmp_path / "none.jsonl")]) == 3
    assert capsys.readouterr().err.count("left out") == 3


@pytest.mark.parametrize("accepted", [None, [], [1], [1, 1, 1]])
def test_rounds_that_are_told_half_can_be_rendered(accepted: list[int] | None) -> None:
    half: GenerationRow = timed(drafted=[3, 3], accepted=accepted)
    document = [render(made([half, row(prompt="p2")]))]
    assert "PASS 2/2" in formats.terminal(document)
    for name in formats.SUFFIXES:
        assert formats.text_of(name, document)


def test_many_problems_are_not_all_told() -> None:
    text = formats.terminal([render(made([row()], problems=[f"line {i}" for i in range(500)]))])
    assert "480 more in the record" in text


def test_equal_outputs_are_held_once(tmp_path: Path) -> None:
    found = record.read(written(tmp_path / "record.jsonl", made([row(), row(tokens=(1, 2))])))
    same, other = found.generations
    assert same.tokens is same.plain_tokens
    assert (other.tokens, other.plain_tokens) == ([1, 2], [1, 2, 3, 4])


# A long record


def test_the_made_up_record_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.jsonl"
    arguments = ["--rows", "400", "--tokens", "12", "--record", str(path), "--format", "csv"]
    render_scale.main(arguments)
    assert re.search(r"csv +\d+\.\d +\d+", capsys.readouterr().out)
    found = record.read(path)
    assert (len(found.generations), found.problems) == (400, [])
    assert {len(each.tokens) for each in found.generations} == {12}
    assert header().schema == found.header.schema
