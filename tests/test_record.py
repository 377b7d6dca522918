"""Records: what is written is read again, and a damaged file says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.record import (
    SCHEMA,
    GenerationRow,
    Header,
    PairInfo,
    Record,
    RecordError,
    Row,
    VerdictRow,
    Writer,
    machine,
    now,
    read,
    versions,
)
from harness.verdict import Status, Verdict

HEADER = Header(
    command="pytest suites",
    started=now(),
    seed=1,
    alpha=1e-3,
    decoders=["reference"],
    pair=PairInfo("tiny", "made from seed 1", "abc", "cpu", "float32"),
    versions=versions(),
    machine=machine(),
    options={"profile": "ci"},
)
VERDICT = VerdictRow(
    decoder="reference",
    item="suites/test_greedy.py::test_ids[tiny]",
    suite="greedy",
    seconds=0.25,
    verdict=Verdict(
        check="ids",
        status=Status.FAIL,
        message="token 3 is 5, expected 7 – „not ASCII”",
        evidence={"found": [1, 2], "alpha": 1e-9, "nested": {"k": None}},
        repro="print(1)\nprint(2)",
    ),
)
GENERATION = GenerationRow(
    decoder="reference",
    task="code",
    prompt_id="code-1",
    repeat=0,
    prompt_tokens=12,
    plain_tokens=[1, 2],
    plain_seconds=0.5,
    tokens=[1, 2],
    seconds=0.125,
    first="plain",
    drafted=[4],
    accepted=[1],
    identical=True,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good record in a folder that did not exist."""
    file = tmp_path / "new" / "record.jsonl"
    with Writer(file, HEADER) as writer:
        writer.add(VERDICT)
        writer.add(GENERATION)
        writer.add(GENERATION)
    return file


def test_what_is_written_is_read_again(path: Path) -> None:
    assert read(path) == Record(
        header=HEADER, verdicts=[VERDICT], generations=[GENERATION] * 2, problems=[]
    )


def test_every_row_is_on_disk_as_soon_as_it_is_added(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "record.jsonl", HEADER)
    for count in (1, 2, 3):
        writer.add(VERDICT)
        record = read(tmp_path / "record.jsonl")
        assert len(record.verdicts) == count
        assert record.problems == ["no footer: the run did not come to its end"]
    writer.close()
    assert read(tmp_path / "record.jsonl").problems == []


def test_what_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    told = msgspec.structs.replace(VERDICT.verdict, message='a byte \udcff of "a log"')
    row = msgspec.structs.replace(VERDICT, verdict=told)
    with Writer(tmp_path / "record.jsonl", HEADER) as writer:
        writer.add(row)
    [found] = read(tmp_path / "record.jsonl").verdicts
    assert found.verdict.message == 'a byte ? of "a log"'
    assert found.verdict.evidence == told.evidence


def test_a_run_that_raised_has_no_footer(tmp_path: Path) -> None:
    def run() -> None:
        with Writer(tmp_path / "record.jsonl", HEADER) as writer:
            writer.add(VERDICT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    record = read(tmp_path / "record.jsonl")
    assert record.verdicts == [VERDICT]
    assert record.problems == ["no footer: the run did not come to its end"]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_left_out_and_told(path: Path, cut: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][: -1 - cut])
    record = read(path)
    assert record.verdicts == [VERDICT]
    assert record.generations == [GENERATION]
    assert record.problems == [
        "line 4 is torn or not of this schema: left out",
        "no footer: the run did not come to its end",
    ]


def test_a_missing_row_is_told(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert read(path).problems == ["the footer counts 3 rows, 2 are readable"]


def test_bytes_that_are_no_text_are_one_bad_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff\xfe{}\n", *lines[1:]]))
    record = read(path)
    assert len(record.verdicts) + len(record.generations) == 3
    assert record.problems == ["line 2 is torn or not of this schema: left out"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: b"", "no header"),
        (lambda text: b"name,value\n1,2\n", "no header"),
        (lambda text: b"".join(text.splitlines(keepends=True)[1:]), "no header"),
        (lambda text: text.replace(b'"schema":1', b'"schema":99', 1), "schema 99"),
        (lambda text: b"\x89PNG\r\n\x1a\n\x00\x00", "no header"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(
    path: Path, damage: Callable[[bytes], bytes], words: str
) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError) as caught:
        read(path)
    assert words in str(caught.value)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(RecordError, match=r"^cannot read [^\n]*$"):
            read(path)


def test_rows_follow_the_published_schema(path: Path) -> None:
    """Other programs read records by this schema: kinds, required fields, the five outcomes."""
    schema = msgspec.json.schema(Row)
    definitions = schema["$defs"]
    kinds = schema["discriminator"]["mapping"]
    assert set(kinds) == {"header", "verdict", "generation", "footer"}
    assert set(definitions["Status"]["enum"]) == {status.value for status in Status}
    for line in path.read_bytes().splitlines():
        row = msgspec.json.decode(line)
        definition = definitions[kinds[row["kind"]].rsplit("/", 1)[1]]
        assert set(definition["required"]) <= set(row) <= set(definition["properties"])
    assert SCHEMA == 1


def test_versions_and_machine_say_what_a_result_depends_on() -> None:
    assert {"python", "torch", "transformers"} <= set(versions())
    assert {"processor", "cores", "threads"} <= set(machine())
    assert all(isinstance(value, str) for value in [*versions().values(), *machine().values()])
