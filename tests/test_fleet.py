"""The suites on a fleet: shards, their records as one, and workers that die."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
import worker_tasks
from test_record import GENERATION, HEADER, VERDICT

from harness import fleet, record, record_merge
from harness.record import Header, RecordError, VerdictRow
from harness.verdict import Status, Verdict

CHECKS = ["--checks", "smoke", "greedy.identity", "randomness.unseeded", "robustness"]


def verdicts(path: Path) -> dict[str, Status]:
    """Status by item, none of which comes twice."""
    rows = record.read(path).verdicts
    found = {row.item: row.verdict.status for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of one run, here."""
    path = tmp_path_factory.mktemp("whole") / "record.jsonl"
    assert fleet.main([*CHECKS, "--results", str(path)]) == 0
    return path


def test_shards_merge_into_the_record_of_the_whole(whole: Path, tmp_path: Path) -> None:
    shards = [tmp_path / f"{number}.jsonl" for number in (1, 2, 3)]
    for number, path in enumerate(shards, 1):
        options = ["--shard", f"{number}/3", "--run-id", "night", "--results", str(path)]
        assert fleet.main([*CHECKS, *options]) == 0
    merged = tmp_path / "merged.jsonl"
    again = [shards[2], shards[0], shards[1], shards[0]]  # in whatever order, and one of them twice
    assert record_merge.main([*map(str, again), "--out", str(merged)]) == 0
    assert verdicts(merged) == verdicts(whole)
    found = record.read(merged)
    assert found.problems == []
    assert found.header.run == "night"
    assert "shard" not in found.header.options
    assert record_merge.main([*map(str, shards[:2]), "--out", str(merged)]) == 3
    assert "no footer" in record.read(merged).problems[0]


def test_a_wrong_decoder_fails_there_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, results = "decoders:last_token", ["--results", str(tmp_path / "record.jsonl")]
    assert fleet.main(["--decoder", wrong, "--checks", "greedy.identity", *results]) == 1
    assert "FAIL suites/test_greedy.py::test_identity[tiny]" in capsys.readouterr().out
    refused = ["--decoder-option", "colour=red", "--checks", "smoke"]
    assert fleet.main([*refused, *results]) == 3
    assert "does not take these options" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shard", "0/2"], "--shard is '0/2': it must be I/N"),
        (["--shard", "half"], "--shard is 'half'"),
        (["--shard", "1/2"], "--shard needs --run-id NAME"),
        (["--checks", "greedy.identty"], "--checks names no item"),
        (["--decoder", "refrence"], "unknown decoder 'refrence'"),
        (["--decoder-option", "x"], "must be KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet.main([*arguments, "--results", str(tmp_path / "record.jsonl")]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_worker_of_a_cluster_that_is_killed_costs_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two, in mid-run: the same verdicts, none lost or doubled."""
    task = functools.partial(worker_tasks.judged_by_one_that_hangs, tmp_path)
    monkeypatch.setattr(fleet, "judged", task)
    noted = tmp_path / "pid"
    killed: list[int] = []

    def kill() -> None:
        while not noted.exists():
            time.sleep(0.1)
        killed.append(int(noted.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    path = tmp_path / "record.jsonl"
    options = ["--executor", "ray", "--jobs", "2", "--results", str(path)]
    assert fleet.main([*CHECKS, *options]) == 0
    assert killed
    assert verdicts(path) == verdicts(whole)
    assert record.read(path).problems == []
    begun = [file.read_text() for file in tmp_path.glob("begun-*")]
    names = [i.removeprefix("suites/test_").replace(".py::test_", ".") for i in verdicts(whole)]
    assert set(begun) == set(names)
    assert len(begun) == len(names) + 1  # what died was begun once more


# --- merging --------------------------------------------------------------------------------------


def shard(number: int, **changes: object) -> Header:
    options = {"profile": "ci", "shard": f"{number}/2"}
    changes = {"run": "night", "options": options, **changes}
    return msgspec.structs.replace(HEADER, **changes)


def of(number: int, *rows: VerdictRow | record.GenerationRow, **changes: object) -> record.Record:
    return record.Record(
        shard(number, **changes),
        [row for row in rows if isinstance(row, VerdictRow)],
        [row for row in rows if isinstance(row, record.GenerationRow)],
        [],
    )


def other(item: str, status: Status = Status.PASS) -> VerdictRow:
    verdict = Verdict(check="ids", status=status, message="")
    return msgspec.structs.replace(VERDICT, item=item, verdict=verdict)


def test_no_row_is_lost_or_doubled() -> None:
    repeat = msgspec.structs.replace(GENERATION, repeat=1)
    slower = msgspec.structs.replace(GENERATION, seconds=9.0)
    merged = record_merge.merge(
        [
            ("b", of(2, other("b"), repeat, slower)),
            ("a", of(1, VERDICT, GENERATION)),
        ]
    )
    assert merged.rows == [VERDICT, GENERATION, other("b"), repeat]
    assert (merged.doubled, merged.missing) == (1, [])


def test_machines_are_all_named() -> None:
    one, two = ({"cores": "2", "processor": name} for name in "xy")
    merged = record_merge.merge([("a", of(1, machine=one)), ("b", of(2, machine=two))])
    assert merged.header.machine == {"cores": "2", "processor": "x and y"}


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (of(2, run="day"), "a and b are not of one run: run is night and day"),
        (of(2, seed=7), "seed is 1 and 7"),
        (of(2, versions={}), "versions is"),
        (of(2, other(VERDICT.item)), "b contradicts an earlier shard: reference suites/"),
        (
            of(2, msgspec.structs.replace(GENERATION, tokens=[1, 3])),
            "b contradicts an earlier shard: reference code code-1 0",
        ),
    ],
)
def test_what_is_not_of_one_run_is_refused(second: record.Record, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        record_merge.merge([("a", of(1, VERDICT, GENERATION)), ("b", second)])


def test_a_record_that_is_no_shard_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.jsonl"
    with record.Writer(path, HEADER) as writer:
        writer.add(VERDICT)
    for out, says in ((tmp_path / "out.jsonl", "has no run id"), (path, "is one of the shards")):
        assert record_merge.main([str(path), "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert len(error.splitlines()) == 1


def test_a_shard_that_broke_off_is_told(tmp_path: Path) -> None:
    broken = record.Record(shard(2), [other("b")], [], ["no footer"])
    merged = record_merge.merge([("a", of(1, VERDICT)), ("b", broken)])
    assert merged.missing == ["b: no footer"]
    assert len(merged.rows) == 2
