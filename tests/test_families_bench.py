"""The benchmark of all drafting families."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import record
from harness.report import families
from harness.report.document import Struck
from harness.report.render import render
from reference_impl import bench
from tests.records import made
from tests.test_costs import timed
from tests.test_report_page import DECODERS, measured


def test_every_family_is_measured_on_every_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--tasks", "chat", "--prompts", "1", "--max-new-tokens", "6"]
    pairs = ["--pair", "tiny", "--pair", "tiny-self"]
    status = bench.main([*pairs, *size, "--peer", "reference-page", "--out", str(tmp_path)])
    assert status == 0
    for pair in ("tiny", "tiny-self"):
        written = record.read(tmp_path / pair / "record.jsonl")
        assert written.header.decoders == [*bench.decoders(pair), "reference-page"]
        assert {row.decoder for row in written.generations} == set(written.header.decoders)
        assert "Where the time goes" in (tmp_path / pair / "report.md").read_text()
    shown = capsys.readouterr().out
    assert "draft c" in shown
    last = shown.rstrip().splitlines()[-1]
    assert last.startswith("| reference-page ")


def test_heads_are_measured_where_they_were_trained() -> None:
    assert "reference-eagle-tree" in bench.decoders("smollm2-135m")
    assert "reference-eagle-tree" not in bench.decoders("wide-llama")
    assert "reference-tree" in bench.decoders("wide-llama")
    assert set(bench.FAMILIES) < set(bench.decoders("smollm2-135m-full-draft"))


def test_options_of_the_report_are_checked_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert bench.main(["--pair", "tiny", "--pair", "micro", "--draft-tokens", "0", *out]) == 2
    assert capsys.readouterr().err.count("--draft-tokens is 0") == 1
    assert bench.main(["--pair", "nope", *out]) == 2
    assert "unknown pair 'nope'" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_table_of_the_readme_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[1]
    committed = root / "reports" / "bench" / "smollm2-135m" / "record.jsonl"
    assert bench.main(["--table", str(committed)]) == 0
    assert capsys.readouterr().out in (root / "README.md").read_text()


def test_a_record_that_is_not_there_has_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--table", str(tmp_path / "none.jsonl")]) == 2
    assert "cannot read" in capsys.readouterr().err
    third_party = Path(__file__).parents[1] / "reports" / "third_party" / "specdec.jsonl"
    assert bench.main(["--table", str(third_party)]) == 2
    assert "has no outputs that were timed" in capsys.readouterr().err


def test_a_row_holds_what_the_tables_of_the_report_hold() -> None:
    found = families.table(measured())
    assert found.columns[:4] == ["decoder", "all tasks", "chat", "code"]
    rows = {str(row[0]): row for row in found.rows}
    assert list(rows) == DECODERS
    speedups, spent = render(measured()).tables[0], {}
    for table in render(measured()).tables:
        if table.title == "Where the time goes":
            spent = {str(row[1]): row for row in table.rows if row[0] == "all"}
    overall = {str(row[1]): row[3] for row in speedups.rows if row[0] == "all"}
    assert {name: row[1] for name, row in rows.items()} == overall
    assert rows["a"][-3:] == [spent["a"][i] for i in (2, 3, 7)]
    assert rows["transformers-x"][-3:] == ["-"] * 3
    assert all(isinstance(cell, Struck) for cell in rows["wrong"][1:4])


def test_one_task_is_not_shown_twice() -> None:
    found = families.table(made([timed(prompt="p1"), timed(prompt="p2")], decoders=["a"]))
    assert found.columns[:3] == ["decoder", "chat", "tokens/call"]
    assert len(found.rows) == 1
