"""The gate of sampled runs: what was timed is judged, and a wrong decoder's speedup is struck."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest

from harness import record
from harness.bench import gate
from harness.bench.columns import columns
from harness.bench.measure import Settings, measure, schedule
from harness.bench.summary import evidence_of, judge
from harness.bench.workload import Prompt, load_workload
from harness.checks.budget import ALPHA
from harness.contract import Decoder
from harness.models import ModelPair, load_pair
from harness.record import GenerationRow
from harness.report import formats
from harness.report.__main__ import main
from harness.report.outcome import exit_status
from harness.report.render import render
from harness.stats.eprocess import Decision
from harness.stats.experts import NAMED
from harness.verdict import Status, Verdict
from reference_impl.mutants import MUTANTS
from tests.records import made
from tests.timed_rows import row

load = functools.cache(load_pair)
TOKENS = 64
PROMPTS = 12  # a task: 24 outputs of 64 tokens for each arm


def decision(rejected: bool, impossible: int = 0) -> Decision:
    return Decision(rejected, 20.0 if rejected else 0.0, 100, None, impossible, NAMED[0], 0.0, 0.0)


@functools.cache
def timed(name: str, temperature: float = 1.0) -> tuple[list[GenerationRow], Decoder, Settings]:
    """Both arms of a decoder on the tiny pair: seeded, so the same in every run."""
    from harness.adapters import load_decoder

    pair = load("tiny")
    decoder = MUTANTS[name](pair) if name in MUTANTS else load_decoder(name, pair)
    settings = Settings(TOKENS, 3, pair.vocab_size, temperature, seed=1)
    trials = schedule([name], prompts(pair), 1, 1)
    return list(measure({name: decoder}, trials, settings, lambda *_: ("", {}))), decoder, settings


def prompts(pair: ModelPair) -> list[Prompt]:
    return load_workload(pair, ["chat", "code"], PROMPTS, TOKENS)


def verdict(name: str, rows: list[GenerationRow] | None = None, **changes: Any) -> Verdict:
    pair = load("tiny")
    found, decoder, settings = timed(name)
    ids = {(prompt.task, prompt.prompt_id): prompt.ids for prompt in prompts(pair)}
    capabilities = changes.get("capabilities", decoder.capabilities)
    judged = found if rows is None else rows
    return gate.judge(changes.get("pair", pair), judged, ids, settings, capabilities, ALPHA)


# The decision, without any sampling


@pytest.mark.parametrize(
    ("speculative", "plain", "net", "status"),
    [
        (False, False, False, None),
        (True, False, True, Status.FAIL),
        (True, False, False, Status.INCONCLUSIVE),
        (True, True, True, Status.ERROR),
        (False, True, False, Status.ERROR),
    ],
)
def test_what_the_two_arms_come_to(
    speculative: bool, plain: bool, net: bool, status: Status | None
) -> None:
    found = gate.Decisions(decision(speculative), decision(plain), decision(net))
    assert found.status is status


@pytest.mark.parametrize("evidence", [*Status, None])
def test_evidence_decides_on_sampled_rows_and_on_no_others(evidence: Status | None) -> None:
    sampled = [row(identical=None)]
    found = judge(columns(sampled).table, evidence=evidence)
    assert found.status is (evidence or Status.INCONCLUSIVE)
    assert judge(columns([row()]).table, evidence=evidence).status is Status.PASS
    assert judge(columns([row(tokens=[9, 9, 9, 9])]).table, evidence=evidence).status is Status.FAIL
    broken = [*sampled, row(prompt="p2", identical=None, error="boom")]
    assert judge(columns(broken).table, evidence=evidence).status is Status.ERROR
    assert judge(columns(sampled).table, True, evidence).disqualifies


# Decoders of which the truth is known


def test_the_reference_passes_and_the_verdict_says_what_it_rests_on() -> None:
    found = verdict("reference")
    assert found.status is Status.PASS
    assert "(power 0.99) a share of 0.9 of the tokens comes from the draft" in found.ruled_out
    assert "(confidence 0.999) at most" in found.ruled_out
    assert found.evidence["alpha"] == ALPHA
    assert found.evidence["tokens"] == 2 * PROMPTS * TOKENS
    assert found.evidence["plain_arm"]["tokens"] == 2 * PROMPTS * TOKENS
    assert f"{2 * PROMPTS * TOKENS} tokens" in found.message
    assert "alpha 0.0001" in found.message


@pytest.mark.parametrize("name", ["accept_all", "greedy_verification"])
def test_a_mutant_fails_and_is_named(name: str) -> None:
    found = verdict(name)
    assert found.status is Status.FAIL
    assert found.ruled_out == ""
    assert found.evidence["log10_wealth"] > 4
    assert found.evidence["plain_arm"]["log10_wealth"] < 4
    if name == "accept_all":
        assert "comes from the draft, unverified" in found.likely_fault


def test_too_few_tokens_say_how_many_are_needed() -> None:
    rows, _, _ = timed("reference")
    found = verdict("reference", rows[:2])
    assert found.status is Status.INCONCLUSIVE
    assert found.ruled_out == ""
    needed = found.evidence["tokens_for_a_gross_fault"]
    assert found.evidence["tokens_that_tell"] < needed
    assert f"and {needed} are needed" in found.message


def test_nothing_to_judge_is_inconclusive() -> None:
    found = verdict("reference", [row(error="boom")])
    assert found.status is Status.INCONCLUSIVE
    assert "no prompt gave two outputs" in found.message


def test_an_oracle_of_another_law_is_an_error() -> None:
    """The target's output matrix doubled: neither arm follows that."""
    pair = copy.copy(load("tiny"))
    target = copy.deepcopy(pair.target)
    target.get_output_embeddings().weight.data.mul_(2)
    object.__setattr__(pair, "target", target)
    found = verdict("reference", pair=pair)
    assert found.status is Status.ERROR
    assert "speculation is not to blame" in found.message


def test_lossy_by_design_is_measured_and_claims_nothing() -> None:
    lossy = frozenset({"model_draft", "declared_lossy"})
    found = verdict("accept_all", capabilities=lossy)
    assert found.status is Status.UNSUPPORTED
    assert "tokens do not follow the target's law" in found.message


# Reports


def test_a_struck_speedup_renders_the_same_from_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant = "reference_impl.mutants:accept_all"
    arguments = ["--pair", "tiny", "--tasks", "chat,code", "--prompts", str(PROMPTS)]
    arguments += ["--max-new-tokens", str(TOKENS), "--temperature", "1"]
    arguments += ["--decoder", mutant, "--decoder", "reference", "--out", str(tmp_path)]
    assert main([*arguments, "--verbose"]) == 1
    printed = capsys.readouterr().out
    speeds = [line for line in printed.splitlines() if " sampled  " in line]
    assert len(speeds) == 6  # two decoders on chat, code and all
    for line in speeds:
        wrong = mutant in line
        assert ("FAIL sampled" if wrong else "PASS sampled") in line
        assert (") not lossless" in line) == wrong
    assert "--temperature 1.0" in printed  # to see it again
    found = record.read(tmp_path / "record.jsonl")
    assert evidence_of(found.verdicts) == {mutant: Status.FAIL, "reference": Status.PASS}
    assert [v.verdict.evidence["alpha"] for v in found.verdicts] == [ALPHA / 2] * 2
    assert main(["--from", str(tmp_path / "record.jsonl"), "--verbose"]) == 1
    assert capsys.readouterr().out == printed


def test_a_sampled_record_without_evidence_is_inconclusive() -> None:
    found = made([row(identical=None)], decoders=["a"])
    text = " ".join(formats.terminal([render(found)]).split())
    assert "a: nothing says whether it follows the target's law" in text
    assert exit_status([found]) == 3
