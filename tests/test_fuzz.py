"""The fuzzing of what strangers send: what it found once stays fixed, and it does find things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from harness import record
from harness.adapters import http_client
from harness.adapters.child import ChildError
from harness.adapters.http_apis.llama_cpp import Probability, _log
from harness.adapters.http_client import ServerError, decode
from harness.adapters.stdio import _reply
from harness.fuzz import __main__ as command
from harness.fuzz.target import Target
from harness.fuzz.targets import targets

DEEP = b'{"more": ' + b"[" * 100_000


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_only_what_is_documented_comes_of_bytes(target: Target) -> None:
    outcome = command.fuzz(target, 200, seed=1)
    assert outcome.findings == {}
    assert outcome.examples == 200


# Found by it


def test_nesting_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="this is not JSON"):
        _reply(b'{"type": "piece", "id": 1, "tokens": [], ' + DEEP[1:])
    with pytest.raises(ServerError, match="not what this API sends"):
        decode(DEEP, dict[str, Any], "here")
    assert http_client._message(DEEP).startswith('{"more": [[[')
    path = tmp_path / "record.jsonl"
    path.write_bytes(DEEP)
    with pytest.raises(record.RecordError, match="its first line is no header"):
        record.read(path)


@pytest.mark.parametrize(
    "said",
    ["²", "Fri, 31 Dec 1999 23:59:59 -0000", "Mon, 1 Jan 1", "Mon, 99 Jan 99999 9:9:9 +9999"],
)
def test_a_pause_that_is_none(said: str) -> None:
    class Response:
        headers = {"Retry-After": said}  # noqa: RUF012

    assert http_client._said(Response()) == 0  # type: ignore[arg-type]


def test_a_probability_below_nothing() -> None:
    with pytest.raises(ServerError, match="has the probability -1"):
        _log(Probability(prob=-1.0))


# The command


def broken(example: int) -> None:
    if example > 3:
        raise KeyError(example)
    if example == 3:
        while True:
            pass


def test_what_is_found_is_told_with_its_shortest_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = Target("numbers", st.integers(0, 50), broken)
    monkeypatch.setattr(command, "targets", lambda: [found])
    monkeypatch.setattr(command, "SLOW", 0.05)
    path = tmp_path / "fuzz.json"
    assert command.main(["--examples", "200", "--json", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "KeyError at" in printed
    assert "Hang at" in printed
    assert "no end after 0.05 s" in printed
    told = json.loads(path.read_text())
    assert told["targets"][0]["examples"] == 51  # there are no more
    assert {"command", "date", "machine", "versions", "seed"} <= told.keys()


def test_nothing_found_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--examples", "5", "--only", "records", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "records: lines of a file  5" in printed
    assert "seed 3\nnothing found" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--examples", "0"], "--examples is 0: at least one a target, 7"),
        (["--only", "pigeons"], "no target has pigeons in its name"),
        (["--json", "/proc/nowhere/x.json"], "cannot write --json"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err
