"""Runs that are killed, and gone on with: at any byte of a record, and for real a few times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import record
from harness.bench import killed
from harness.resume import kept
from tests.test_record import GENERATION, HEADER, VERDICT


def test_a_record_that_ends_at_any_byte_is_gone_on_with(tmp_path: Path) -> None:
    rows = [VERDICT, GENERATION, GENERATION, VERDICT]
    path = tmp_path / "record.jsonl"
    with record.Writer(path, HEADER) as writer:
        for row in rows:
            writer.add(row)
    data = path.read_bytes()
    header, *ends = [end + 1 for end in range(len(data)) if data[end : end + 1] == b"\n"]
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        found = kept(path, HEADER)
        whole = sum(end <= length for end in ends[: len(rows)])
        assert len(found.verdicts) + len(found.generations) == whole
        assert found.bytes == (0 if length < header else [header, *ends][whole])
        with found.writer(path, HEADER) as writer:
            for row in rows[whole:]:
                writer.add(row)
        again = record.read(path)
        assert again.problems == []
        assert again.verdicts == [VERDICT, VERDICT]
        assert again.generations == [GENERATION, GENERATION]
        torn = length not in (0, header, *ends) and length > header
        assert ("its last line is torn" in found.told) == torn
        assert ("begun anew" in found.told) == (length < header)


def test_every_row_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = record.Writer(tmp_path / "record.jsonl", HEADER)
    lines: list[bytes] = []

    class File:
        name = "record"

        def write(self, line: bytes) -> int:
            lines.append(line)
            return len(line) - (len(lines) > 1)

    monkeypatch.setattr(writer, "_file", File())
    writer.add(VERDICT)
    assert lines[0].endswith(b"}\n")
    with pytest.raises(OSError, match="only a part of a row"):  # a full disk
        writer.add(VERDICT)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "before the first row"),
        (b'{"kind":"header"}\n', "before the first row"),
        (b'{"kind":"hea', "in the middle of a line"),
        (b'{"kind":"header"}\n{"kind":"verdict"}\n', "between rows"),
        (b'{"kind":"header"}\n{"kind":"verdict"}\n{"ki', "in the middle of a line"),
        (b'{"kind":"header"}\n{"kind":"verdict"}\n{"kind":"footer"}\n', "after the end"),
    ],
)
def test_where_a_kill_was(data: bytes, where: str) -> None:
    assert killed.place(data) == where


def test_what_is_lost_doubled_or_changed_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with record.Writer(path, HEADER) as writer:
        writer.add(VERDICT)
        writer.add(GENERATION)
    data, rows = path.read_bytes(), dict(killed.told(record.read(path)))
    header, verdict, generation, footer = data.splitlines(keepends=True)
    whole = killed.Whole(0, rows, 1.0)

    def compared(*lines: bytes, before: bytes = b"", status: int = 0) -> killed.Kill:
        path.write_bytes(b"".join(lines))
        return killed.compared(killed.Kill("suites", 0.5, ""), whole, before, path, status)

    assert compared(data, before=data).fine
    lost = compared(header, verdict, footer)
    assert (lost.lost, "the footer counts 2 rows" in lost.problem) == (1, True)
    assert compared(header, verdict, generation, generation, footer).doubled == 1
    other = verdict.replace(b'"FAIL"', b'"PASS"')
    assert compared(header, other, generation, footer, before=data).lost == 1  # written anew
    assert compared(header, other, generation, footer).changed == 1
    assert "no footer" in compared(header, verdict, generation).problem
    assert "exit status 1, it should be 0" in compared(data, status=1).problem
    assert compared(b"{").lost == 2


def test_runs_that_are_killed_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = tmp_path / "killed.json"
    assert killed.main(["--kills", "3", "--json", str(file)]) == 0
    assert "nothing lost, nothing doubled" in capsys.readouterr().out
    told = json.loads(file.read_text())
    assert [kill["run"] for kill in told["kills"]] == ["report", "suites", "report"]
    assert {"command", "date", "machine", "versions", "seed"} <= told.keys()


def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert killed.main(["--kills", "0"]) == 2
    assert capsys.readouterr().err == "error: --kills is 0: at least 1\n"
