"""Checks on small wrong decoders: each fault gets the verdict, and the words, that it deserves."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import decoders
import msgspec
import pytest
import torch
from decoders import Wrong

from harness import oracle
from harness.adapters import load_decoder
from harness.checks import (
    batching,
    distribution,
    exact_law,
    greedy,
    randomness,
    robustness,
    smoke,
    stopping,
)
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject
from harness.contract import Request, Sampling
from harness.models import load_pair
from harness.verdict import Status, Verdict
from reference_impl.mutants import accept_all

load = functools.cache(load_pair)
BUDGET = Budget(
    draft_tokens=(3,), prompts=1, new_tokens=8, samples=3_000, tables=40, large_tokens=600
)
Check = Callable[[Subject, Budget], Verdict]


def joint(subject: Subject, budget: Budget) -> Verdict:
    return distribution.family(subject, budget, "T=1", 3)


def filtered(subject: Subject, budget: Budget) -> Verdict:
    return distribution.family(subject, budget, "T=0.7 top_k=5 top_p=0.9", 3)


CHECKS: list[Check] = [
    smoke.wired,
    greedy.identity,
    stopping.eos,
    batching.rows,
    randomness.seed,
    randomness.unseeded,
    robustness.bad_input,
    joint,
    exact_law.tables,
]


def subject(decoder: str | Any, pair: str = "tiny") -> Subject:
    """A decoder by its name in ``decoders``, another's name, or the object itself."""
    if not isinstance(decoder, str):
        return Subject(decoder, load(pair), "no:name")
    name = f"decoders:{decoder}" if hasattr(decoders, decoder) else decoder
    return Subject(load_decoder(name, load(pair)), load(pair), name, loaded_with={"name": pair})


@functools.cache
def verdict_of(name: str, check: Check, pair: str) -> Verdict:
    return check(subject(name, pair), BUDGET)


# --- what each fault is called --------------------------------------------------------------------

FAIL, ERROR = Status.FAIL, Status.ERROR
CASES: list[tuple[str, Check, str, Status, str]] = [
    ("last_token", greedy.identity, "tiny", FAIL, "token 0 is"),
    ("last_token", greedy.identity, "tiny-ties", FAIL, "logit gap 0;"),  # a tie is no excuse
    ("last_token", stopping.eos, "tiny", FAIL, "plain decoding gives"),
    ("last_token", batching.rows, "tiny", FAIL, "(alone as in a batch)"),
    ("last_token_in_both_arms", greedy.identity, "tiny", ERROR, "speculation is not to blame"),
    ("last_token_in_both_arms", batching.rows, "tiny", ERROR, "speculation is not to blame"),
    ("last_token_in_both_arms", smoke.wired, "tiny", ERROR, "wrong model or adapter?"),
    ("draft_alone", joint, "micro-bad", ERROR, "speculation is not to blame"),
    ("draft_alone", smoke.wired, "tiny-bad", ERROR, "wrong model or adapter?"),
    ("wrong_theta", smoke.wired, "tiny", ERROR, "wrong model or adapter?"),
    ("without_eos", stopping.eos, "tiny", FAIL, "for no reason"),
    ("always_length", stopping.eos, "tiny", FAIL, "'length', expected 'eos'"),
    ("longer", greedy.identity, "tiny", FAIL, "output goes on after length at token 1 of 2"),
    ("longer", greedy.identity, "tiny-gpt2", FAIL, "goes on after length"),
    ("shorter", greedy.identity, "tiny", FAIL, "output ends after 1 tokens for no reason"),
    ("shorter", joint, "micro", ERROR, "5 tokens of 6 asked for"),
    ("seedless", randomness.seed, "tiny", FAIL, "other ids the second time"),
    ("restarted", randomness.unseeded, "tiny", FAIL, "4 unseeded calls gave 1 different"),
    ("filterless", filtered, "micro", FAIL, "tokens of probability zero"),
    ("mixed_rows", batching.rows, "tiny", FAIL, "(in a batch; alone it is right)"),
    ("answers_all", robustness.bad_input, "tiny", FAIL, "empty prompt: answered instead"),
    ("crashes_on_nonsense", robustness.bad_input, "tiny", FAIL, "raised a IndexError instead"),
    ("RaisingPage", exact_law.tables, "tiny", ERROR, "the rule raised KeyError: 'weights'"),
    ("MutePage", exact_law.tables, "tiny", ERROR, "malformed output: no tokens were generated"),
    ("MisnamedEnd", exact_law.tables, "tiny", FAIL, "the output law is off by 1 "),
]


@pytest.mark.parametrize(
    ("name", "check", "pair", "status", "words"),
    [pytest.param(*case, id=f"{case[0]}-{case[1].__name__}-{case[2]}") for case in CASES],
)
def test_a_fault_gets_its_verdict(
    name: str, check: Check, pair: str, status: Status, words: str
) -> None:
    verdict = verdict_of(name, check, pair)
    assert (verdict.status, words in verdict.message) == (status, True), str(verdict)
    if status is Status.FAIL or check is exact_law.tables:
        assert f"load_decoder('decoders:{name}'" in verdict.repro
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_reference_passes_and_says_what_that_rules_out(check: Check) -> None:
    name = "reference-page" if check is exact_law.tables else "reference"
    verdict = check(subject(name, "micro-bad" if check is joint else "tiny"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_decoder_that_raises_is_an_error(check: Check) -> None:
    verdict = check(subject("raises", "micro" if check is joint else "tiny"), BUDGET)
    if check is exact_law.tables:
        assert verdict.status is Status.UNSUPPORTED
    elif check is robustness.bad_input:
        assert (verdict.status, "raised a RuntimeError" in verdict.message) == (FAIL, True)
    else:
        assert verdict.status is Status.ERROR
        assert verdict.message == "the decoder raised RuntimeError: out of memory"
        assert "load_decoder" in verdict.repro


def test_a_missing_capability_is_named() -> None:
    decoder = Wrong(load("micro"), decoders.asked())
    decoder.capabilities = frozenset({"plain", "rounds"})
    wanted = {
        greedy.identity: "greedy",
        stopping.eos: "eos, greedy",
        batching.rows: "batch, greedy",
        randomness.seed: "sampling, seed",
        randomness.unseeded: "sampling",
        robustness.bad_input: "greedy, validates",
        joint: "sampling",
        exact_law.tables: "exact_law",
    }
    for check, names in wanted.items():
        verdict = check(subject(decoder, "micro"), BUDGET)
        assert verdict.status is Status.UNSUPPORTED
        assert verdict.message == f"the decoder does not declare: {names}"
    decoder.capabilities = frozenset({"sampling"})
    verdict = filtered(subject(decoder, "micro"), BUDGET)
    assert verdict.message == "the decoder does not declare: top_k, top_p"


def test_what_was_not_asked_for_is_not_claimed() -> None:
    decoder = Wrong(load("tiny"), decoders.asked())
    decoder.capabilities = frozenset({"greedy", "stop"})
    verdict = stopping.priority(subject(decoder), BUDGET)
    assert verdict.status is Status.PASS
    assert verdict.ruled_out.endswith("undeclared: eos)")
    assert "undeclared" not in stopping.priority(subject("reference"), BUDGET).ruled_out


# --- sampled output -----------------------------------------------------------------------------


def test_a_fault_of_the_law_is_named() -> None:
    verdict = joint(Subject(accept_all(load("micro-bad")), load("micro-bad"), "mutant"), BUDGET)
    assert verdict.status is Status.FAIL
    assert "of the tokens comes from the draft, unverified" in verdict.likely_fault
    assert verdict.evidence["plain_arm"]["rejected"] == ""


def test_too_few_samples_are_inconclusive() -> None:
    verdict = joint(subject("reference", "micro"), dataclasses.replace(BUDGET, samples=30))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.message == "30 samples cannot show any known fault"


def test_a_pair_that_is_too_large_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "ENUMERABLE", 100)
    verdict = joint(subject("reference", "micro"), BUDGET)
    assert (verdict.status, "--pair micro" in verdict.message) == (Status.UNSUPPORTED, True)


def test_unseeded_outputs_do_not_coincide_by_chance() -> None:
    """Else a right decoder fails: the chance that two outputs agree is the mean of their own."""
    pair, total = load("micro"), 0.0
    for seed in range(4):
        prompt = random_prompt(pair, 6, seed)
        request = Request(
            prompt=prompt, max_new_tokens=randomness.TOKENS, sampling=Sampling(temperature=1.0)
        )
        seeded = [msgspec.structs.replace(request, seed=i) for i in range(60)]
        for found in subject("reference", "micro").ask(seeded):
            _, laws = oracle.laws_along(pair.target, request, found.tokens, pair.vocab_size)
            row = torch.arange(len(found.tokens))
            total += float(laws[row, found.tokens].log().sum().exp()) / 60
    pairs_of_outputs = 16 * 15 / 2
    assert total / 4 * pairs_of_outputs < 1e-6


# --- near-ties ----------------------------------------------------------------------------------


def test_a_gap_within_noise_is_a_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = load("tiny")
    noise = oracle.noise(pair, random_prompt(pair, 8, 0))
    within, beyond = (oracle.Divergence(0, 1, 2, gap) for gap in (noise, 100 * noise))
    assert greedy.near_tie(pair, within)
    assert not greedy.near_tie(pair, beyond)
    # A model that is very noisy: the replaced token is then no fault, and is told.
    monkeypatch.setattr(greedy, "noise_of", lambda pair: 100.0)
    verdict = greedy.identity(subject("last_token"), BUDGET)
    assert verdict.status is Status.PASS
    assert len(verdict.evidence["near_ties"]) == verdict.evidence["requests"]


def test_where_there_is_no_noise_an_exact_tie_is_no_excuse() -> None:
    assert not greedy.near_tie(load("tiny-ties"), oracle.Divergence(0, 2, 3, 0.0))


# --- reproductions ------------------------------------------------------------------------------


def test_reproductions_run_in_a_fresh_process() -> None:
    """One process for several, as importing torch takes its time."""
    cases: Sequence[tuple[str, Check]] = [
        ("last_token", greedy.identity),
        ("mixed_rows", batching.rows),
        ("MisnamedEnd", exact_law.tables),
    ]
    verdicts = [verdict_of(name, check, "tiny") for name, check in cases]
    script = "\n".join(f"print('---')\n{verdict.repro}" for verdict in verdicts)
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(root), str(root / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, alone, batch, law = done.stdout.split("---\n")
    assert f"tokens={verdicts[0].evidence['got']}" in alone
    assert f"tokens={verdicts[1].evidence['got']}" in batch
    got, expected = law.splitlines()
    assert got.removeprefix("got     ") != expected.removeprefix("expected ")


def test_batches_need_repeat_a_seed_only_where_noise_cannot_part_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = load_pair("tiny")
    assert randomness.reproducible(pair)
    monkeypatch.setattr(greedy, "noise_of", lambda pair: 1e-3)
    assert not randomness.reproducible(pair)
