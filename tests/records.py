"""Records made by hand, and how reports are asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.record import GenerationRow, Header, PairInfo, Record, VerdictRow
from harness.verdict import Status, Verdict

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["--pair", "tiny", "--profile", "quick", "--tasks", "chat"]


def header(**changes: Any) -> Header:
    found: dict[str, Any] = {
        "command": "python -m harness.report",
        "started": "2026-01-01T00:00:00+00:00",
        "seed": 7,
        "alpha": 0.05,
        "decoders": ["a", "b"],
        "pair": PairInfo("tiny", "made from seed 1", "0123456789abcdef", "cpu", "float32"),
        "versions": {"python": "3.12"},
        "machine": {"system": "Linux", "cores": "2", "threads": "1"},
        "options": {"profile": "quick", "draft_tokens": 3, "temperature": 0.0},
    }
    return Header(**(found | changes))


def made(
    generations: Sequence[GenerationRow] = (), verdicts: Sequence[VerdictRow] = (), **changes: Any
) -> Record:
    problems = changes.pop("problems", [])
    return Record(header(**changes), list(verdicts), list(generations), problems)


def verdict(status: Status, expected: str = "") -> VerdictRow:
    return VerdictRow(
        decoder="a",
        item="suites/test_greedy.py::test_equal",
        suite="greedy",
        seconds=0.1,
        expected_failure=expected,
        verdict=Verdict(check="equal", status=status, message="because", likely_fault="off by one"),
    )


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def one_line(stderr: str) -> str:
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
