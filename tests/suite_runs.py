"""Run ``pytest suites/`` on a decoder as a user would, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import record
from harness.verdict import Status

ROOT = Path(__file__).parent.parent


def run_suites(results: Path, decoder: str, *arguments: str) -> record.Record:
    """Run the smoke profile on a decoder and read its record back."""
    options = ["--decoder", decoder, "--results", str(results), "--profile", "smoke", *arguments]
    command = [sys.executable, "-m", "pytest", "suites", "-q", "-p", "no:xdist", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    read = record.read(results)
    assert not read.problems
    return read


def suites_that(found: record.Record, status: Status) -> set[str]:
    """Suites in which some verdict has this status."""
    return {row.suite for row in found.verdicts if row.verdict.status is status}
