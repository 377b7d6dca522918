"""Every mutant is caught by the suites, through the public contract alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import run_suites, suites_that

from harness.verdict import Status
from reference_impl.mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_where_it_should_be(name: str, tmp_path: Path) -> None:
    found = run_suites(tmp_path / "record.jsonl", f"reference_impl.mutants:{name}")
    assert suites_that(found, Status.FAIL) >= set(MUTANTS[name].seen_in)
    assert not suites_that(found, Status.ERROR)  # its plain arm is right: speculation is to blame
    failed = [row.verdict for row in found.verdicts if row.verdict.status is Status.FAIL]
    assert all("load_decoder" in verdict.repro for verdict in failed)
