"""Windows, recurrent states and position ids: right decoders pass, and faults get their names."""

from __future__ import annotations

import functools
from collections.abc import Callable

import decoders
import pytest
from decoders import Wrong

from harness.adapters import load_decoder
from harness.checks import greedy, positions, state
from harness.checks.budget import Budget
from harness.checks.positions import WRONG, explains
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject
from harness.contract import Request
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(1, 3), prompts=1, new_tokens=12, samples=1, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS = {
    "tiny-window": state.window,
    "tiny-mamba-bad": state.recurrent,
    "tiny-gpt2": positions.positions,
    "tiny-ties": greedy.ties,
}


def subject(name: str, pair: str) -> Subject:
    return Subject(load_decoder(name, load(pair)), load(pair), name)


def mutant(name: str, pair: str) -> Verdict:
    return CHECKS[pair](subject(f"reference_impl.mutants:{name}", pair), BUDGET)


@pytest.mark.parametrize("name", ["reference", "reference-ngram", "reference-page"])
@pytest.mark.parametrize("pair", CHECKS)
def test_right_decoders_pass(name: str, pair: str) -> None:
    verdict = CHECKS[pair](subject(name, pair), BUDGET)
    assert verdict.passed, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize("pair", CHECKS)
def test_greedy_must_be_declared(pair: str) -> None:
    decoder = Wrong(load(pair), decoders.asked())
    decoder.capabilities = frozenset({"plain"})
    verdict = CHECKS[pair](Subject(decoder, load(pair), "no:name"), BUDGET)
    assert verdict.status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (state.window, "no sliding window"),
        (state.recurrent, "no recurrent state"),
        (greedy.ties, "do not tie"),
    ],
)
def test_a_pair_without_the_matter_is_unsupported(check: Check, words: str) -> None:
    verdict = check(subject("reference", "tiny"), BUDGET)
    assert verdict.status is Status.UNSUPPORTED
    assert words in verdict.message


@pytest.mark.parametrize(
    ("name", "pair", "kind", "words"),
    [
        ("window_untrimmed", "tiny-window", FaultClass.CACHE, "another window"),
        ("window_misaligned", "tiny-window", FaultClass.CACHE, "another window"),
        ("window_forgotten_subtle", "tiny-window", FaultClass.CACHE, "another window"),
        ("accept_all", "tiny-window", FaultClass.ACCEPTANCE, "a draft is accepted"),
        ("no_rollback", "tiny-window", FaultClass.CACHE, "something behind"),
        ("state_not_restored", "tiny-mamba-bad", FaultClass.CACHE, "recurrent state"),
        ("first_slot_read", "tiny-mamba-bad", FaultClass.CACHE, "recurrent state"),
        ("empty_round_uncommitted", "tiny-mamba-bad", FaultClass.CACHE, "recurrent state"),
        ("accept_all", "tiny-mamba-bad", FaultClass.ACCEPTANCE, "a draft is accepted"),
        (
            "positions_keep_rejected",
            "tiny-gpt2",
            FaultClass.POSITIONS,
            "no token had been rejected",
        ),
        ("bonus_position_twice", "tiny-gpt2", FaultClass.POSITIONS, "one too high"),
        ("positions_from_zero", "tiny-gpt2", FaultClass.POSITIONS, "begin at 0"),
        ("no_rollback", "tiny-gpt2", FaultClass.CACHE, "something behind"),
    ],
)
def test_a_fault_gets_its_name(name: str, pair: str, kind: FaultClass, words: str) -> None:
    verdict = mutant(name, pair)
    assert verdict.status is Status.FAIL, str(verdict)
    assert (verdict.fault_class, words in verdict.likely_fault) == (kind, True), str(verdict)


@pytest.mark.parametrize(("error", "status"), [(ValueError, "UNSUPPORTED"), (KeyError, "ERROR")])
def test_a_decoder_may_refuse_recurrent_targets(error: type[Exception], status: str) -> None:
    def refuse(*_: object) -> None:
        raise error("no such targets")

    decoder = Wrong(load("tiny-mamba-bad"), refuse)
    verdict = state.recurrent(Subject(decoder, load("tiny-mamba-bad"), "no:name"), BUDGET)
    assert verdict.status is Status[status]
    assert "no such targets" in verdict.message


def test_no_wrong_way_of_counting_explains_a_right_output() -> None:
    pair = load("tiny-gpt2")
    request = Request(prompt=random_prompt(pair, 3, 1), max_new_tokens=24, draft_tokens=3)
    completion = subject("reference", "tiny-gpt2").ask_one(request)
    assert not any(explains(pair, request, completion, counting) for counting in WRONG.values())
    assert explains(pair, request, completion, lambda place, _, __: place)
