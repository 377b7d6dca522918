"""``--resume``: an interrupted run goes on, no row is lost or doubled, another run is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from harness import record, resume
from harness.command_line import BadInput
from harness.record import Header, Record, VerdictRow, Writer
from harness.report.__main__ import main
from tests.records import header, one_line
from tests.timed_rows import row

ARGUMENTS = ["--pair", "tiny", "--tasks", "chat", "--prompts", "3", "--max-new-tokens", "12"]
ARGUMENTS += ["--decoder", "reference", "--decoder", "reference-ngram"]


def run(directory: Path, *arguments: str) -> int:
    return main([*ARGUMENTS, *arguments, "--out", str(directory)])


def keys(found: Record) -> Counter[tuple[str, str, int]]:
    return Counter((r.decoder, r.prompt_id, r.repeat) for r in found.generations)


def cut(path: Path, rows: int, torn: bytes = b"") -> list[bytes]:
    """Leave the header and so many rows, and what was being written."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: rows + 1]) + torn)
    return lines


@pytest.mark.parametrize("rows", [0, 2, 5])
@pytest.mark.parametrize("torn", [False, True])
def test_the_rest_is_measured_and_what_was_there_is_kept(
    rows: int, torn: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 0
    path = tmp_path / "record.jsonl"
    before = record.read(path)
    lines = cut(path, rows, b'{"kind":"generation","deco' if torn else b"")
    assert run(tmp_path, "--resume") == 0
    after = record.read(path)
    assert path.read_bytes().startswith(b"".join(lines[: rows + 1]))
    assert after.problems == []
    assert keys(after) == keys(before)
    assert set(keys(after).values()) == {1}
    assert after.generations[:rows] == before.generations[:rows]
    told = "its last line is torn, and is dropped" in capsys.readouterr().err
    assert told == torn


def test_a_last_row_without_its_end_of_line_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row(prompt="p1"))
        writer.add(row(prompt="p2"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2].rstrip())
    kept = resume.kept(path, header())
    assert [r.prompt_id for r in kept.generations] == ["p1"]
    assert kept.bytes == len(lines[0]) + len(lines[1])
    with kept.writer(path, header()) as writer:
        writer.add(row(prompt="p2"))
    found = record.read(path)
    assert (found.problems, [r.prompt_id for r in found.generations]) == ([], ["p1", "p2"])


def test_a_finished_record_lacks_nothing(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    before = record.read(tmp_path / "record.jsonl")
    assert run(tmp_path, "--resume") == 0
    after = record.read(tmp_path / "record.jsonl")
    assert (after.generations, after.problems) == (before.generations, [])


def test_verdicts_are_not_doubled_and_judge_all_rows(tmp_path: Path) -> None:
    arguments = ("--temperature", "1", "--decoder", "tests.changed_decoders:without_plain")
    assert run(tmp_path, *arguments) == 3
    path = tmp_path / "record.jsonl"
    before = record.read(path)
    assert len(before.verdicts) == 3  # one UNSUPPORTED, and two of sampled outputs
    cut(path, 4)
    assert run(tmp_path, *arguments, "--resume") == 3
    after = record.read(path)

    def told(row: VerdictRow) -> tuple[str, str, str]:
        return row.decoder, row.verdict.status.value, row.verdict.message

    assert list(map(told, after.verdicts)) == list(map(told, before.verdicts))
    assert keys(after) == keys(before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draft-tokens", "4"], "draft_tokens was 3, and is 4"),
        (["--seed", "9"], "seed was 20261129, and is 9"),
        (["--prompts", "2"], "prompts was 3, and is 2"),
        (["--temperature", "1"], "temperature was 0.0, and is 1.0"),
        (["--decoder", "reference-suffix"], "decoders was"),
        (["--pair", "tiny-bad"], "is of another run"),
    ],
)
def test_another_run_is_refused_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 0
    before = (tmp_path / "record.jsonl").read_bytes()
    capsys.readouterr()
    assert run(tmp_path, *arguments, "--resume") == 2
    line = one_line(capsys.readouterr().err)
    assert words in line
    assert "leave out --resume to begin anew" in line
    assert (tmp_path / "record.jsonl").read_bytes() == before


def test_nothing_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "new", "--resume") == 2
    assert "to resume: leave out --resume" in one_line(capsys.readouterr().err)
    assert not (tmp_path / "new").exists()
    (tmp_path / "record.jsonl").write_text("nonsense\n")
    assert run(tmp_path, "--resume") == 2
    assert "is not a record" in one_line(capsys.readouterr().err)
    assert main(["--from", "x.jsonl", "--resume"]) == 2
    assert "--resume has no effect with --from" in one_line(capsys.readouterr().err)


def test_a_record_that_is_damaged_in_its_midst_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row())
    first, second, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"{}\n" + second + last)
    with pytest.raises(BadInput, match="damaged before its last line"):
        resume.kept(path, header())


def test_another_start_or_load_is_no_other_run(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    told = header(options={"load_average": 0.1, "draft_tokens": 3})
    with Writer(path, told):
        pass
    later: Header = msgspec.structs.replace(
        told,
        started="later",
        command="the same --resume",
        options={"load_average": 3.0, "draft_tokens": 3},
    )
    assert resume.kept(path, later).generations == []
