"""Right decoders, seed after seed."""

from __future__ import annotations

import json
from concurrent.futures import Executor
from pathlib import Path

import pytest

from harness import items, matrix, seeds
from harness.matrix import Cell, Row
from harness.verdict import Status


@pytest.fixture
def two_items(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [i for i in items.items("smoke") if i.check in ("smoke.wired", "randomness.unseeded")]
    monkeypatch.setattr(seeds, "items", lambda profile: few)


def test_what_is_there_is_not_run_again(
    two_items: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "seeds.jsonl"
    assert seeds.main(["--seeds", "2", "--out", str(out)]) == 0
    assert [run.counts for run in seeds.read(out)] == [{"PASS": 2}] * 2
    asked: list[Row] = []
    run_all = matrix.run_all

    def noted(rows: list[Row], executor: Executor) -> object:
        asked.extend(rows)
        return run_all(rows, executor)

    monkeypatch.setattr(matrix, "run_all", noted)
    assert seeds.main(["--seeds", "3", "--out", str(out)]) == 0
    assert [row.seed for row in asked] == [seeds.FIRST + 2]
    assert len(seeds.read(out)) == 3


def test_a_torn_row_is_dropped_and_run_again(
    two_items: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "seeds.jsonl"
    assert seeds.main(["--seeds", "2", "--out", str(out)]) == 0
    header, first, second = out.read_bytes().splitlines(keepends=True)
    assert {"command", "date", "machine", "versions"} == json.loads(header)["header"].keys()
    out.write_bytes(first + second[:-1])  # as files were without headers
    assert seeds.main(["--seeds", "2", "--out", str(out)]) == 0
    assert f"note: the last line of {out} is torn, and is dropped" in capsys.readouterr().err
    assert out.read_bytes().startswith(first)
    assert [run.seed for run in seeds.read(out)] == [seeds.FIRST, seeds.FIRST + 1]


def test_a_row_that_lacks_no_more_than_its_end_is_run_again(
    two_items: None, tmp_path: Path
) -> None:
    out = tmp_path / "seeds.jsonl"
    assert seeds.main(["--seeds", "1", "--out", str(out)]) == 0
    out.write_bytes(out.read_bytes().splitlines()[-1])
    assert seeds.main(["--seeds", "2", "--out", str(out)]) == 0
    assert [run.seed for run in seeds.read(out)] == [seeds.FIRST, seeds.FIRST + 1]


def test_an_alarm_is_told(
    two_items: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "reference_impl.mutants:answers_nothing"
    options = ["--seeds", "1", "--decoder", wrong, "--out", str(tmp_path / "seeds.jsonl")]
    assert seeds.main(options) == 1
    assert f"{wrong}, seed {seeds.FIRST}: ERROR smoke.wired[tiny]: " in capsys.readouterr().out


def test_unsupported_is_no_alarm_and_inconclusive_is_one() -> None:
    row = Row("reference", ["a.b[tiny]"], seed=1)
    cells = [
        Cell(decoder="reference", item="a.b[tiny]", check="a.b", status=status, seconds=1.0)
        for status in (Status.PASS, Status.UNSUPPORTED, Status.INCONCLUSIVE)
    ]
    run = seeds._run(row, cells)
    assert run.counts == {"PASS": 1, "UNSUPPORTED": 1, "INCONCLUSIVE": 1}
    assert run.alarms == ["INCONCLUSIVE a.b[tiny]: "]


def test_a_file_of_something_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("notes\nof somebody", '{"mine": [1, 2, 3]}', '{"mine": 1}\n{"mine": 2}'):
        (tmp_path / "notes").write_text(text)
        assert seeds.main(["--out", str(tmp_path / "notes")]) == 2
        assert "has other rows, give another --out" in capsys.readouterr().err
        assert (tmp_path / "notes").read_text() == text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--decoder", "nope"], "unknown decoder 'nope'"),
        (["--seeds", "-4"], "--seeds is -4: ask for at least 1"),
    ],
)
def test_bad_input_leaves_nothing(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seeds.main([*options, "--out", str(tmp_path / "seeds.jsonl")]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert seeds.main(["--out", "/dev/null/seeds.jsonl"]) == 2
    assert capsys.readouterr().err.startswith("error: cannot write --out")
