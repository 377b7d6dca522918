"""The JSON Schema of records: that of the code, and what every record holds to, old and new."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from json_schema import problems

from harness import record_schema
from harness.record import GenerationRow, read
from harness.record_schema import FILE, text
from harness.report.__main__ import main

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads(FILE.read_text())
PLACES = ("reports/*/record.jsonl", "reports/third_party/*.jsonl")
COMMITTED = sorted(path for place in PLACES for path in ROOT.glob(place))


def wrong(path: Path) -> list[str]:
    return record_schema.wrong(path.read_bytes().splitlines())


def test_the_file_is_what_the_command_prints() -> None:
    assert FILE.read_text() == text(), f"python -m harness.record_schema > {FILE}"


def test_committed_records_hold_to_it_and_are_read_whole() -> None:
    assert len(COMMITTED) > 30
    for path in COMMITTED:
        assert wrong(path) == []
        assert read(path).problems == []


def test_a_fresh_record_of_the_report_holds_to_it(tmp_path: Path) -> None:
    words = ["--pair", "tiny", "--tasks", "chat", "--prompts", "1", "--max-new-tokens", "8"]
    words += ["--decoder", "reference", "--decoder", "tests.changed_decoders:without_plain"]
    assert main([*words, "--temperature", "1", "--out", str(tmp_path)]) == 3
    path = tmp_path / "record.jsonl"
    assert wrong(path) == []
    record = read(path)
    assert record.generations
    assert record.verdicts
    assert record.header.seeds == {"order": 20261129, "requests": 20261129}
    assert len(record.header.pair.fingerprint) == 64


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "verdikt"}, "'verdikt' is not one of"),
        ({"decoder": 3}, "$.decoder: 3 is not of type 'string'"),
        ({"tokens": [1, "2"]}, "$.tokens[1]: '2' is not of type 'integer'"),
        ({"seconds": None}, "$.seconds: None is not of type 'number'"),
    ],
)
def test_what_no_reader_takes_is_wrong_by_it(change: dict[str, object], problem: str) -> None:
    row = GenerationRow(
        decoder="d",
        task="t",
        prompt_id="p",
        repeat=0,
        prompt_tokens=1,
        plain_tokens=[1],
        plain_seconds=1.0,
        tokens=[1],
        seconds=1.0,
        first="plain",
    )
    made = msgspec.json.decode(msgspec.json.encode(row))
    assert problems(made, SCHEMA) == []
    assert any(
        problem in found
        for found in problems(made | change, SCHEMA, SCHEMA["$defs"]["GenerationRow"])
    )


def test_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record_schema.main([]) == 0
    assert capsys.readouterr().out == text()
    assert record_schema.main(["--check", *map(str, COMMITTED[:2])]) == 0
    assert "all as the schema says" in capsys.readouterr().out
    path = tmp_path / "record.jsonl"
    path.write_bytes(COMMITTED[0].read_bytes() + b'{"kind": "footer"}\n{\n')
    assert record_schema.main(["--check", str(path)]) == 1
    said = capsys.readouterr().out
    assert "is not valid under any of the given schemas" in said
    assert "not JSON" in said
    assert record_schema.main(["--check", str(tmp_path / "none.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_without_the_library_the_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert record_schema.main(["--check", str(COMMITTED[0])]) == 2
    assert "pip install jsonschema" in capsys.readouterr().err
