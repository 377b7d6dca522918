"""Decoders that are right pass the suites: the reference on every path, and transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import run_suites, suites_that

from harness.verdict import Status


@pytest.mark.parametrize("decoder", ["reference", "reference-ngram"])
def test_the_reference_passes(decoder: str, tmp_path: Path) -> None:
    found = run_suites(tmp_path / "record.jsonl", decoder)
    statuses = {row.item: row.verdict.status for row in found.verdicts}
    unsupported = {item for item, status in statuses.items() if status is Status.UNSUPPORTED}
    without_model_draft = {
        "suites/test_acceptance.py::test_expected[tiny]",
        "suites/test_acceptance.py::test_self_draft[tiny-self]",
    }
    assert unsupported == {"suites/test_exact_law.py::test_tables[tiny]"} | (
        without_model_draft if decoder == "reference-ngram" else set()
    )
    assert {statuses[item] for item in statuses.keys() - unsupported} == {Status.PASS}


@pytest.mark.parametrize(
    "decoder", ["reference-page", "transformers-assisted", "transformers-lookup"]
)
def test_slow_right_decoders_pass(decoder: str, tmp_path: Path) -> None:
    """One generation at a time: few samples, on the pair where few show the most."""
    some = ("--pair", "micro-bad", "--samples", "700", "-k", "not (1.4 or min_p or top_k)")
    found = run_suites(tmp_path / "record.jsonl", decoder, *some)
    statuses = {row.verdict.status for row in found.verdicts}
    assert statuses <= {Status.PASS, Status.UNSUPPORTED}
    assert suites_that(found, Status.PASS) >= {"smoke", "greedy", "stopping", "distribution"}
