"""The timing loop: the order of measurement, one trial, and its judgement of divergences."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from harness.adapters import load_decoder
from harness.bench.columns import columns
from harness.bench.measure import Settings, measure, missing_capabilities, schedule
from harness.bench.summary import judge
from harness.bench.workload import Prompt, load_workload
from harness.checks import greedy as greedy_checks
from harness.contract import Completion, Request, Round
from harness.models import ModelPair, load_pair
from harness.record import GenerationRow
from harness.verdict import Status
from tests.timed_rows import PROMPTS, SETTINGS, Scripted, rows_of, says

# The order of measurement


def test_schedule_is_complete_balanced_and_seeded() -> None:
    tasks = ("chat", "code", "math", "creative")
    prompts = [Prompt(task, f"{task}-{i}", (1,)) for task in tasks for i in range(4)]
    decoders = ["a", "b", "c"]
    trials = schedule(decoders, prompts, 2, seed=5)
    assert len(trials) == 3 * 16 * 2
    arms = Counter((trial.decoder, trial.prompt.task, trial.first) for trial in trials)
    assert set(arms.values()) == {4}
    both = Counter((trial.decoder, trial.prompt.prompt_id, trial.first) for trial in trials)
    assert set(both.values()) == {1}  # each prompt is led by each arm once in two repeats
    assert trials == schedule(decoders, prompts, 2, seed=5)
    assert trials != schedule(decoders, prompts, 2, seed=6)


def test_schedule_alternates_arms_and_takes_tasks_in_turn() -> None:
    prompts = [Prompt(task, f"{task}-{i}", (1,)) for task in ("chat", "code") for i in range(2)]
    trials = schedule(["a"], prompts, 1, seed=0)
    assert [t.prompt.prompt_id for t in trials] == ["chat-0", "code-0", "chat-1", "code-1"]
    assert [t.first for t in trials if t.prompt.task == "chat"] == ["plain", "speculative"]


def test_decoders_are_shuffled_within_a_prompt() -> None:
    prompts = [Prompt("chat", f"chat-{i}", (1,)) for i in range(12)]
    trials = schedule(["a", "b", "c"], prompts, 1, seed=0)
    groups = [trials[i : i + 3] for i in range(0, len(trials), 3)]
    assert all(len({t.prompt for t in group}) == 1 for group in groups)
    assert all({t.decoder for t in group} == {"a", "b", "c"} for group in groups)
    assert len({tuple(t.decoder for t in group) for group in groups}) > 2


# One trial


def test_identical_outputs_of_a_well_behaved_decoder() -> None:
    rounds = [Round(3, 2), Round(0, 0)]
    decoder = Scripted(says(5, 6, 7, 8), says(5, 6, 7, 8, rounds=rounds))
    first, second = rows_of(decoder)
    assert (first.first, second.first) == ("plain", "speculative")
    assert first.identical is True
    assert (first.tokens, first.plain_tokens) == ([5, 6, 7, 8], [5, 6, 7, 8])
    assert (first.drafted, first.accepted) == ([3, 0], [2, 0])
    assert first.seconds > 0
    assert first.plain_seconds > 0
    assert first.error == first.fault == first.near_tie == ""


def test_arms_differ_in_nothing_but_speculation_and_warm_up_comes_first() -> None:
    decoder = Scripted(says(5, 6, 7, 8), says(5, 6, 7, 8))
    rows_of(decoder)
    assert len(decoder.seen) == 2 + 2 * len(PROMPTS)
    plain, speculative = decoder.seen[2:4]
    assert (plain.speculate, speculative.speculate) == (False, True)
    assert plain == Request(prompt=(1, 2, 3), max_new_tokens=4, draft_tokens=3, speculate=False)
    assert speculative == Request(prompt=(1, 2, 3), max_new_tokens=4, draft_tokens=3)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RuntimeError("boom\nmore"), "RuntimeError: boom"),
        (says(), "empty output"),
        ([], "0 completions for 1 request"),
        (says(5, 64), "token id 64 is outside the vocabulary 0..63"),
        (says(5, 6, 7, 8, rounds=[Round(1, 2)]), "accepts more tokens than it drafted"),
        ("nonsense", "AttributeError"),
        (None, "AttributeError"),
    ],
)
def test_garbage_gives_an_error_row_and_the_run_goes_on(answer: Any, words: str) -> None:
    good = says(5, 6, 7, 8)
    broken = rows_of(Scripted(good, answer))
    assert len(broken) == len(PROMPTS)
    assert all(words in r.error and r.error.startswith("speculative decoding: ") for r in broken)
    assert judge(columns(broken).table).status is Status.ERROR
    assert all(r.error.startswith("plain decoding: ") for r in rows_of(Scripted(answer, good)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says(5, 6, 7, 8, 9), "output goes on after length at token 4 of 5"),
        (says(5, 6), "output ends after 2 tokens for no reason"),
        (says(5, 0, 7, 8), "output goes on after eos at token 2 of 4"),
        (says(5, 6, 7, 8, reason="eos"), "finish_reason is 'eos', expected 'length'"),
    ],
)
def test_wrong_end_of_both_arms_is_no_pass(answer: Completion, words: str) -> None:
    settings = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64, eos=(0,))
    found = rows_of(Scripted(answer, answer), settings)
    assert all(words in r.error for r in found)


def test_divergence_is_a_fault() -> None:
    fault = rows_of(Scripted(says(5, 6, 7, 8), says(5, 6, 9, 8)))[0]
    assert (fault.identical, fault.fault) == (False, "here")


def test_sampled_rows_are_not_compared_but_their_form_is() -> None:
    settings = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64, temperature=0.7)
    found = rows_of(Scripted(says(5, 6, 7, 8), says(1, 2, 3, 4)), settings)
    assert [r.identical for r in found] == [None, None]
    assert judge(columns(found).table).status is Status.INCONCLUSIVE
    short = rows_of(Scripted(says(5, 6, 7, 8), says(1)), settings)
    assert "ends after 1 tokens for no reason" in short[0].error


def test_same_seed_for_both_arms_where_the_decoder_takes_one() -> None:
    settings = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64, temperature=0.7)
    decoder = Scripted(says(5, 6, 7, 8), says(1, 2, 3, 4))
    rows_of(decoder, settings)
    seeds = [request.seed for request in decoder.seen[2:]]
    assert seeds[0] == seeds[1]
    assert seeds[2] == seeds[3]
    assert seeds[0] != seeds[2]
    unseeded = Scripted(says(5, 6, 7, 8), says(1, 2, 3, 4), frozenset({"sampling", "plain"}))
    rows_of(unseeded, settings)
    assert {request.seed for request in unseeded.seen} == {None}


def test_missing_capabilities_are_named() -> None:
    bare = Scripted(None, None, frozenset({"greedy"}))
    assert missing_capabilities(bare, SETTINGS) == ["plain"]
    sampled = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64, temperature=1.0)
    assert missing_capabilities(bare, sampled) == ["plain", "sampling"]


def test_the_reference_on_a_tiny_pair() -> None:
    pair = load_pair("tiny")
    prompts = load_workload(pair, ["chat", "math"], 2, 12)
    settings = Settings(max_new_tokens=12, draft_tokens=3, vocab_size=pair.vocab_size)
    decoders = {"reference": load_decoder("reference", pair)}
    trials = schedule(["reference"], prompts, 1, 0)
    found = list(measure(decoders, trials, settings, partial(greedy_checks.problem_of, pair)))
    assert [len(r.tokens) for r in found] == [12] * 4
    assert judge(columns(found).table).status is Status.PASS
    assert all(sum(r.accepted or []) + len(r.accepted or []) == 12 for r in found)


# Judgement of divergences


@pytest.fixture(scope="module")
def ties() -> ModelPair:
    return load_pair("tiny-ties")


@pytest.fixture(scope="module")
def greedy(ties: ModelPair) -> list[int]:
    """The plain output of the prompt 1, 2, 3: all even, its odd neighbours tie with it."""
    request = Request(prompt=(1, 2, 3), max_new_tokens=4, speculate=False)
    return load_decoder("reference", ties).generate([request])[0].tokens


def row_of(pair: ModelPair, plain: list[int], speculative: list[int]) -> GenerationRow:
    decoder = Scripted(says(*plain), says(*speculative))
    return rows_of(decoder, judge=partial(greedy_checks.problem_of, pair))[0]


def wrong_at(output: list[int], position: int) -> list[int]:
    return [*output[:position], (output[position] + 8) % 64, *output[position + 1 :]]


def test_tied_token_is_a_near_tie_where_there_is_noise(
    ties: ModelPair, greedy: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.checks.greedy.noise_of", lambda _: 1e-5)
    found = row_of(ties, greedy, [*greedy[:3], greedy[3] + 1])
    assert (found.fault, found.error, found.identical) == ("", "", False)
    assert f"token 3: {greedy[3] + 1} for {greedy[3]}, gap 0" in found.near_tie


def test_exact_tie_without_noise_must_break_as_plain_decoding_breaks_it(
    ties: ModelPair, greedy: list[int]
) -> None:
    found = row_of(ties, greedy, [*greedy[:3], greedy[3] + 1])
    assert f"token 3 is {greedy[3] + 1}, plain decoding gives {greedy[3]}" in found.fault


def test_wrong_token_is_a_fault_even_where_there_are_ties(
    ties: ModelPair, greedy: list[int]
) -> None:
    found = row_of(ties, greedy, wrong_at(greedy, 2))
    assert f"token 2 is {(greedy[2] + 8) % 64}, plain decoding gives {greedy[2]}" in found.fault


def test_plain_output_that_is_not_the_targets_is_an_error(
    ties: ModelPair, greedy: list[int]
) -> None:
    for speculative in (greedy, wrong_at(greedy, 1)):
        found = row_of(ties, wrong_at(greedy, 2), speculative)
        assert "plain decoding is not the target's: token 2" in found.error
        assert not found.fault


def test_short_output_is_a_fault(ties: ModelPair, greedy: list[int]) -> None:
    found = row_of(ties, greedy, greedy[:3])
    assert found.fault == "output ends after 3 tokens for no reason"
