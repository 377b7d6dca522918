"""``pytest suites/ --resume``: what has a row is not run again, and ends as it did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from json_schema import problems

from harness import record
from harness.adapters import load_decoder
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.record_schema import schema
from harness.verdict import Status

ROOT = Path(__file__).parent.parent
ITEMS = [
    "suites/test_exact_law.py",  # UNSUPPORTED
    "suites/test_greedy.py::test_identity",  # FAIL
    "suites/test_randomness.py",
    "suites/test_smoke.py",  # PASS
]
WRONG = [*ITEMS, "--decoder=decoders:last_token", "--pair=micro"]
QUIET = ["--capture=no", "-pno:cacheprovider", "-pno:faulthandler", "-pno:xdist"]


@dataclass
class Run:
    code: int
    output: str
    path: Path

    @property
    def record(self) -> record.Record:
        return record.read(self.path)

    @property
    def outcomes(self) -> str:
        """What pytest counts, in its last line."""
        [line] = re.findall(r"^=+ (.*) in [\d.]+s.*=+$", self.output, re.MULTILINE)
        return str(line)


Suites = Callable[..., Run]


@pytest.fixture
def suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Suites:
    """Run suites with some arguments, and the same record every time."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> Run:
        path = tmp_path / "record.jsonl"
        capsys.readouterr()
        code = pytest.main(["--results", str(path), *QUIET, *arguments])
        return Run(int(code), "".join(capsys.readouterr()), path)

    return run


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No decoder can be built."""

    def refused(*_: object) -> None:
        raise AssertionError("an item was run again")

    monkeypatch.setattr("harness.adapters.load_decoder", refused)


def rows(found: record.Record) -> list[record.VerdictRow]:
    timeless = [msgspec.structs.replace(row, seconds=0.0) for row in found.verdicts]
    return sorted(timeless, key=lambda row: row.item)


def cut(path: Path, count: int, torn: bytes = b"") -> bytes:
    """Leave the header and so many rows, and what was being written; returns what is whole."""
    lines = path.read_bytes().splitlines(keepends=True)
    whole = b"".join(lines[: count + 1])
    path.write_bytes(whole + torn)
    return whole


@pytest.mark.parametrize(("count", "torn"), [(0, b""), (2, b'{"kind":"verdict","deco'), (4, b"")])
def test_the_rest_is_run_and_all_verdicts_are_those_of_a_whole_run(
    suites: Suites, tmp_path: Path, count: int, torn: bytes
) -> None:
    (tmp_path / "expected.txt").write_text("test_identity*  # known\n")
    arguments = [*WRONG, "--xfails-file", str(tmp_path / "expected.txt")]
    whole = suites(*arguments)
    before = whole.record
    kept = cut(whole.path, count, torn)
    again = suites(*arguments, "--resume")
    assert again.path.read_bytes().startswith(kept)
    assert (again.record.problems, rows(again.record)) == ([], rows(before))
    assert (again.code, again.outcomes) == (whole.code, whole.outcomes)
    state = "its last line is torn, and is dropped" if torn else "it has no footer, for the run"
    assert f"{count} rows of {again.path} are kept; {state}" in again.output
    assert f"{count} verdicts were taken from it" in again.output


@pytest.mark.usefixtures("nothing_runs")
def test_a_whole_record_is_shown_again_as_it_is(
    monkeypatch: pytest.MonkeyPatch, suites: Suites, tmp_path: Path
) -> None:
    with monkeypatch.context() as free:
        free.setattr("harness.adapters.load_decoder", load_decoder)
        whole = suites(*WRONG)
    before = whole.record
    assert {row.verdict.status for row in before.verdicts} >= {
        Status.PASS,
        Status.FAIL,
        Status.UNSUPPORTED,
    }
    again = suites(*WRONG, "--resume")
    assert (again.code, again.outcomes) == (whole.code, whole.outcomes) == (1, whole.outcomes)
    assert again.record.verdicts == before.verdicts  # their seconds too
    assert "the run had come to its end; 6 verdicts were taken from it" in again.output
    assert "verdicts of decoders:last_token: " in again.output
    assert "FAIL greedy.identity: " in again.output
    assert "reproduce:" in again.output
    # A failure that the record calls unexpected stays one, whatever is expected by now.
    (tmp_path / "expected.txt").write_text("*  # all of it\n")
    late = suites(*WRONG, "--resume", "--xfails-file", str(tmp_path / "expected.txt"))
    assert "xfailed" not in late.outcomes


@pytest.mark.usefixtures("nothing_runs")
def test_crashes_expected_failures_and_passes_that_were_not_expected_stay_what_they_were(
    suites: Suites, tmp_path: Path
) -> None:
    expected = tmp_path / "expected.txt"
    expected.write_text("test_wired* | run again  # known\n")
    arguments = ["suites/test_smoke.py", "--xfails-file", str(expected)]
    crashed = suites(*arguments)  # for no decoder can be built
    [row] = crashed.record.verdicts
    assert (row.verdict.status, row.expected_failure) == (Status.ERROR, "known")
    again = suites("suites/test_smoke.py", "--resume")  # even without the file
    assert (again.code, again.outcomes) == (0, "1 xfailed")
    assert again.record.verdicts == crashed.record.verdicts
    # The same record, had it passed: then the file says that it must not.
    passed = msgspec.structs.replace(row.verdict, status=Status.PASS)
    fine = msgspec.structs.replace(row, verdict=passed, expected_failure="")
    with record.Writer(again.path, crashed.record.header) as writer:
        writer.add(fine)
    again = suites(*arguments, "--resume")
    assert (again.code, again.outcomes) == (1, "1 failed")
    assert "[XPASS(strict)] known" in again.output


def in_processes(path: Path, *arguments: str, workers: int = 2) -> subprocess.CompletedProcess[str]:
    """The same with workers of xdist."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    for name in [name for name in environment if name.startswith("PYTEST")]:
        del environment[name]
    command = [sys.executable, "-m", "pytest", f"-n{workers}", "--results", str(path), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_workers_take_what_is_there_too(suites: Suites) -> None:
    whole = suites(*WRONG)
    before = whole.record
    kept = cut(whole.path, 3, b'{"ki')
    done = in_processes(whole.path, *WRONG, "--resume")
    assert done.returncode == whole.code, done.stdout
    assert whole.path.read_bytes().startswith(kept)
    assert (whole.record.problems, rows(whole.record)) == ([], rows(before))
    assert "its last line is torn, and is dropped; 3 verdicts were taken from it" in done.stdout


class Exits:
    """Takes the process along when it is asked for many tokens."""

    capabilities = frozenset({"greedy", "plain"})

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        os._exit(9)


def exits(pair: ModelPair) -> Any:
    return Exits()


def test_an_item_that_took_its_worker_along_is_an_error_and_is_not_tried_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.jsonl"
    arguments = ["suites/test_smoke.py", "--decoder=test_suites_resume:exits", "--pair=micro"]
    done = in_processes(path, *arguments, workers=1)
    assert done.returncode == 1, done.stdout
    [row] = record.read(path).verdicts
    assert (row.item, row.suite) == ("suites/test_smoke.py::test_wired[micro]", "smoke")
    assert (row.verdict.check, row.verdict.status) == ("smoke.wired", Status.ERROR)
    assert "the process that ran it ended" in row.verdict.message
    again = in_processes(path, *arguments, "--resume", workers=0)
    assert again.returncode == 1
    assert "1 verdicts were taken from it" in again.stdout
    assert record.read(path).verdicts == [row]


SMOKE = ["suites/test_smoke.py", "--pair=micro"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--decoder=reference-ngram"], 'decoders was ["reference"], and is ["reference-ngram"]'),
        (["--pair=micro-bad"], "pair fingerprint was "),
        (["--profile=ci"], 'profile was "smoke", and is "ci"'),
        (["--seed=9"], "seed was 20261129, and is 9"),
        (["--draft-tokens=2"], "draft_tokens was null, and is 2"),
        (["--decoder-option=max_batch=2"], 'decoder_options max_batch was null, and is "2"'),
        (["--dtype=bfloat16"], 'pair dtype was "float32", and is "bfloat16"'),
        (["-k", "wired"], 'keyword was null, and is "wired"'),
        (["suites/test_contract.py"], "items was "),
    ],
)
def test_another_run_is_refused_in_one_line(
    suites: Suites, arguments: list[str], words: str
) -> None:
    before = suites(*SMOKE).path.read_bytes()
    run = suites(*SMOKE, *arguments, "--resume")
    refused(run, words, before)


def refused(run: Run, words: str, before: bytes) -> None:
    assert run.code == 2
    [line] = [line for line in run.output.splitlines() if "error: " in line]
    assert words in line
    assert "leave out --resume to begin anew" in line
    assert "passed" not in run.output
    assert run.path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda text: text.replace(b'"fingerprint":"', b'"fingerprint":"0'),
            "pair fingerprint was",
        ),
        (lambda text: text.replace(b'"schema":1', b'"schema":99'), "has schema 99"),
        (lambda text: text.replace(b'"verdict"', b'"verdikt"', 1), "last line, in line 2"),
        (lambda text: b"somebody's notes", "is not a record"),
        (lambda text: text[:30].replace(b'"schema":1', b'"schema":2'), "is not a record"),
    ],
)
def test_what_cannot_be_gone_on_with_is_named_and_left_alone(
    suites: Suites, damage: Callable[[bytes], bytes], words: str
) -> None:
    path = suites(*SMOKE).path
    before = damage(path.read_bytes())
    path.write_bytes(before)
    refused(suites(*SMOKE, "--resume"), words, before)


@pytest.mark.parametrize("length", [0, 1, 30, -1])
def test_a_record_without_a_whole_header_is_begun_anew(suites: Suites, length: int) -> None:
    run = suites(*SMOKE)
    header = run.path.read_bytes().splitlines()[0] + b"\n"
    run.path.write_bytes(header[:length])
    again = suites(*SMOKE, "--resume")
    assert (again.code, again.record.problems, len(again.record.verdicts)) == (0, [], 1)
    assert f"{again.path} has no whole header, and is begun anew" in again.output


def test_there_must_be_a_record(suites: Suites, tmp_path: Path) -> None:
    run = suites(*SMOKE, "--resume")
    assert run.code == 2
    assert f"there is no {run.path} to resume: leave out --resume" in run.output
    assert not run.path.exists()
    run = replace(run, code=int(pytest.main([*QUIET, *SMOKE, "--resume"])))
    assert run.code == 2


def test_a_run_that_was_cut_short_has_no_footer(suites: Suites) -> None:
    run = suites(*WRONG, "--exitfirst")
    assert run.record.problems == ["no footer: the run did not come to its end"]
    before = len(run.record.verdicts)
    again = suites(*WRONG, "--resume")
    assert again.record.problems == []
    assert before < len(again.record.verdicts) == 6


def test_collecting_writes_no_record(suites: Suites) -> None:
    before = suites(*SMOKE).path.read_bytes()
    assert suites(*SMOKE, "--collect-only", "--resume").path.read_bytes() == before


def test_the_header_names_seeds_and_weights_and_every_row_is_by_the_schema(suites: Suites) -> None:
    run = suites(*WRONG, "--seed=5")
    header = run.record.header
    assert header.seeds == {"prompts": 5, "requests": 5}
    assert re.fullmatch("[0-9a-f]{64}", header.pair.fingerprint)
    assert header.pair.source == "made from seed 1"
    assert header.fingerprints == {}
    for line in run.path.read_bytes().splitlines():
        assert problems(msgspec.json.decode(line), schema()) == []
    header = suites("suites/test_smoke.py").record.header
    assert header.pair.fingerprint == ""
    assert {"tiny", "micro-hostile"} <= set(header.fingerprints)
    assert len(set(header.fingerprints.values())) == len(header.fingerprints)
