"""The e-process in shards: a right decoder passes, a wrong one is named, and seeds stay apart."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness import evidence_shards, record
from harness.checks.budget import PROFILES
from harness.evidence_shards import Shard, bets, merged, split
from harness.executors import Local
from harness.stats.eprocess import EProcess
from harness.verdict import Status

BUDGET = dataclasses.replace(PROFILES["smoke"], samples=200, alpha=1e-4)
WHOLE = Shard("reference", {}, {"name": "tiny"}, "T=1", BUDGET)


@pytest.fixture(scope="module")
def states() -> list[dict[str, Any]]:
    found = [bets(shard) for shard in split(WHOLE, 2)]
    return [state for state in found if isinstance(state, dict)]


def test_shards_have_seeds_of_their_own_and_parts_of_the_tokens() -> None:
    shards = split(WHOLE, 4)
    requests = [evidence_shards._arms(shard).requests(speculate=True) for shard in shards]
    seeds = [request.seed for batch in requests for request in batch]
    assert len(set(seeds)) == len(seeds)
    assert sum(shard.budget.samples for shard in shards) == BUDGET.samples


def test_what_is_merged_is_the_sum_of_what_was_won(states: list[dict[str, Any]]) -> None:
    arms = merged(WHOLE, states)
    process: EProcess = arms.speculative.process
    assert process.tokens == sum(state["speculative"]["tokens"] for state in states)
    for j, wealth in enumerate(process.log_wealths.tolist()):
        parts = [state["speculative"]["log_wealths"][j] for state in states]
        assert None in parts or wealth == pytest.approx(sum(parts), abs=1e-9)
    assert arms.between.pairs == sum(state["between"]["pairs"] for state in states)
    assert arms.reach.growth.rows == sum(state["growth"]["rows"] for state in states)
    assert arms.believed
    verdict = evidence_shards.evidence.conclusion(arms, "T=1")
    assert verdict.passed, str(verdict)
    assert "of the tokens follow the draft" in verdict.ruled_out


def test_a_wrong_decoder_is_named_and_can_be_seen_again() -> None:
    wrong = dataclasses.replace(WHOLE, decoder="reference_impl.mutants:resample_from_target")
    verdict = evidence_shards.judged(wrong, 2, Local())
    assert verdict.status is Status.FAIL
    assert "drawn from the target instead of the residual" in verdict.likely_fault
    assert "print(evidence(subject" in verdict.repro


def test_what_takes_no_seeds_is_not_sharded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that two workers do not draw the same numbers."""
    subject = evidence_shards._subject(WHOLE)
    unseeded = copy.copy(subject.decoder)
    unseeded.capabilities = subject.decoder.capabilities - {"seed"}
    without = dataclasses.replace(subject, decoder=unseeded)
    monkeypatch.setattr(evidence_shards, "_subject", lambda shard: without)
    verdict = evidence_shards.judged(WHOLE, 2, Local())
    assert verdict.status is Status.UNSUPPORTED
    assert "does not declare: seed" in verdict.message


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.jsonl"
    wrong = ["--decoder", "reference_impl.mutants:accept_all", "--samples", "50", "--shards", "2"]
    assert evidence_shards.main([*wrong, "--results", str(file)]) == 1
    assert "FAIL distribution.evidence" in capsys.readouterr().out
    (row,) = record.read(file).verdicts
    assert row.item == "suites/test_distribution.py::test_evidence[tiny-T=1]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shards", "0"], "--shards is 0"),
        (["--samples", "0"], "--samples is 0"),
        (["--decoder", "refrence"], "unknown decoder 'refrence'"),
        (["--pair", "tyni"], "tyni"),
        (["--decoder-option", "=x"], "must be KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evidence_shards.main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
