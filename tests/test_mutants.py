"""Every mutant is caught by the suites, through the public contract alone; the right ones pass.

Each decoder runs in a pytest of its own, as a user would run it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness import record
from harness.verdict import Status
from reference_impl.mutants import MUTANTS

ROOT = Path(__file__).parent.parent


def run_suites(results: Path, decoder: str, *arguments: str) -> record.Record:
    """Run ``pytest suites/`` on a decoder and read its record back."""
    options = ["--decoder", decoder, "--results", str(results), *arguments]
    command = [sys.executable, "-m", "pytest", "suites", "-q", "-p", "no:xdist", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    read = record.read(results)
    assert not read.problems
    return read


def suites_that(found: record.Record, status: Status) -> set[str]:
    return {row.suite for row in found.verdicts if row.verdict.status is status}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_where_it_should_be(name: str, tmp_path: Path) -> None:
    decoder = f"reference_impl.mutants:{name}"
    found = run_suites(tmp_path / "record.jsonl", decoder, "--profile", "smoke")
    assert suites_that(found, Status.FAIL) >= set(MUTANTS[name].seen_in)
    assert not suites_that(found, Status.ERROR)  # its plain arm is right: speculation is to blame
    failed = [row.verdict for row in found.verdicts if row.verdict.status is Status.FAIL]
    assert all("load_decoder" in verdict.repro for verdict in failed)


@pytest.mark.parametrize("decoder", ["reference", "reference-ngram"])
def test_the_reference_passes(decoder: str, tmp_path: Path) -> None:
    found = run_suites(tmp_path / "record.jsonl", decoder, "--profile", "smoke")
    statuses = {row.item: row.verdict.status for row in found.verdicts}
    unsupported = {item for item, status in statuses.items() if status is Status.UNSUPPORTED}
    assert unsupported == {"suites/test_exact_law.py::test_tables[tiny]"}
    assert {statuses[item] for item in statuses.keys() - unsupported} == {Status.PASS}


@pytest.mark.parametrize(
    "decoder", ["reference-page", "transformers-assisted", "transformers-lookup"]
)
def test_slow_right_decoders_pass(decoder: str, tmp_path: Path) -> None:
    """One generation at a time: few samples, on the pair where few show the most."""
    some = ("--pair", "micro-bad", "--samples", "700", "--profile", "smoke")
    found = run_suites(tmp_path / "record.jsonl", decoder, *some)
    statuses = {row.verdict.status for row in found.verdicts}
    assert Status.PASS in statuses
    assert statuses <= {Status.PASS, Status.UNSUPPORTED}
    assert suites_that(found, Status.PASS) >= {"smoke", "greedy", "stopping", "distribution"}
