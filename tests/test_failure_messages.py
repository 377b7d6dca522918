"""A failure says what diverged where, by a small request, and shows again in a fresh process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.adapters import load_decoder
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.items import items
from harness.models import load_pair
from harness.verdict import Status, Verdict

ROOT = Path(__file__).parent.parent
GREEDY = [
    ("accept_all", "greedy.identity"),
    ("bonus_from_draft", "greedy.identity"),
    ("no_rollback", "greedy.identity"),
    ("answers_by_prompt", "properties.sequences"),
]


def verdict_of(mutant: str, check: str) -> Verdict:
    item = next(item for item in items("smoke") if item.check == check)
    pair, name = load_pair(item.pair), f"reference_impl.mutants:{mutant}"
    verdict = item.run(Subject(load_decoder(name, pair), pair, name), PROFILES["smoke"])
    assert verdict.status is Status.FAIL, str(verdict)
    return verdict


def pasted(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("mutant", "check"), GREEDY)
def test_a_wrong_output_shows_again(mutant: str, check: str, tmp_path: Path) -> None:
    verdict = verdict_of(mutant, check)
    lengths = [int(n) for n in re.findall(r"max_new_tokens=(\d+)", verdict.repro)]
    blocks = [int(n) for n in re.findall(r"draft_tokens=(\d+)", verdict.repro)]
    assert lengths
    assert max(lengths) <= 8
    assert max(blocks, default=4) <= 4
    printed = pasted(verdict.repro, tmp_path)
    assert f"tokens={verdict.evidence['got']}" in printed
    if "position" in verdict.evidence:
        at, expected = verdict.evidence["position"], verdict.evidence["expected"]
        got = verdict.evidence["got"][at]
        assert verdict.message.startswith(
            f"token {at} is {got}, plain decoding gives {expected} (logit gap"
        )
        assert re.search(rf"expected Completion\(tokens=\[(\d+, ){{{at}}}{expected}\b", printed)


def test_a_statistical_failure_shows_again(tmp_path: Path) -> None:
    verdict = verdict_of("accept_all_sampled", "distribution.family")
    printed = pasted(verdict.repro, tmp_path)
    assert printed.startswith("FAIL distribution.family: ")
    assert verdict.message in printed
