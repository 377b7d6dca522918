"""The timing loop, its judgement of divergences, and the figures made of the rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.adapters import load_decoder
from harness.bench import estimate
from harness.bench.columns import columns
from harness.bench.comparison import baseline_of, compare
from harness.bench.estimate import MANY, geometric_mean, mean
from harness.bench.measure import Settings, measure, missing_capabilities, schedule
from harness.bench.row_figures import repetition
from harness.bench.summary import judge, summarise
from harness.bench.workload import Prompt, load_workload
from harness.checks import greedy as greedy_checks
from harness.contract import CAPABILITIES, Completion, Request, Round
from harness.models import ModelPair, load_pair
from harness.record import GenerationRow
from harness.verdict import Status

SETTINGS = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64)
PROMPTS = [Prompt("chat", f"chat-{i}", (1, 2, 3)) for i in range(2)]


@dataclass
class Scripted:
    """A decoder that answers what it is told to, by arm."""

    plain: Any
    speculative: Any
    capabilities: frozenset[str] = frozenset(CAPABILITIES)
    seen: list[Request] = field(default_factory=list)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.seen += requests
        answer = self.speculative if requests[0].speculate else self.plain
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, list) else [answer]


def says(*tokens: int, reason: Any = "length", rounds: list[Round] | None = None) -> Completion:
    return Completion(tokens=list(tokens), finish_reason=reason, rounds=rounds)


def wrong_if_speculative(request: Request, completion: Completion) -> tuple[str, dict[str, Any]]:
    return ("here" if request.speculate and completion.tokens != [5, 6, 7, 8] else ""), {}


def rows_of(
    decoder: Any, settings: Settings = SETTINGS, judge: Any = wrong_if_speculative
) -> list[GenerationRow]:
    trials = schedule(["scripted"], PROMPTS, 1, 0)
    return list(measure({"scripted": decoder}, trials, settings, judge))


def row(
    decoder: str = "a",
    prompt: str = "p1",
    plain_seconds: float = 2.0,
    seconds: float = 1.0,
    tokens: Sequence[int] = (1, 2, 3, 4),
    plain_tokens: Sequence[int] = (1, 2, 3, 4),
    task: str = "chat",
    **rest: Any,
) -> GenerationRow:
    """A row of two arms; identical where the ids are, unless said otherwise."""
    rest.setdefault("identical", list(tokens) == list(plain_tokens))
    return GenerationRow(
        decoder=decoder,
        task=task,
        prompt_id=prompt,
        repeat=rest.pop("repeat", 0),
        prompt_tokens=3,
        plain_tokens=list(plain_tokens),
        plain_seconds=plain_seconds,
        tokens=list(tokens),
        seconds=seconds,
        first="plain",
        **rest,
    )


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


def test_geometric_mean_and_interval() -> None:
    found = geometric_mean([1.0, 2.0, 4.0, 2.0])
    assert found.value == pytest.approx(2.0)
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < 2.0 < found.high <= 4.0
    assert found == geometric_mean([1.0, 2.0, 4.0, 2.0])  # a fixed resampling seed


def test_interval_of_degenerate_samples() -> None:
    single = geometric_mean([1.5])
    assert (single.value, single.low, single.high) == (pytest.approx(1.5), None, None)
    same = geometric_mean([1.5, 1.5, 1.5])
    assert same.low == same.high == pytest.approx(1.5)
    two = geometric_mean([1.0, 4.0])
    assert two.low is not None
    assert not math.isnan(two.low)


def test_the_interval_of_many_is_that_of_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = np.random.default_rng(0).lognormal(0, 1, MANY)
    expanded = mean(sample.tolist())
    monkeypatch.setattr(estimate, "MANY", MANY + 1)
    drawn = mean(sample.tolist())
    error = sample.std() / math.sqrt(MANY)
    symmetric = sample.mean() - 1.96 * error, sample.mean() + 1.96 * error
    for end, normal in zip(("low", "high"), symmetric, strict=True):
        within = 0.1 * error  # four times the noise of so many resamples
        assert getattr(expanded, end) == pytest.approx(getattr(drawn, end), abs=within)
        assert normal != pytest.approx(getattr(drawn, end), abs=within)


def test_figures_against_values_by_hand() -> None:
    rows = [
        row(prompt="p1", plain_seconds=2.0, seconds=1.0, drafted=[3, 3], accepted=[3, 0]),
        row(prompt="p2", plain_seconds=1.0, seconds=2.0, drafted=[2], accepted=[1]),
        row(prompt="p3", plain_seconds=4.0, seconds=1.0),
    ]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx((2 * 0.5 * 4) ** (1 / 3))
    assert (found.slower, found.prompts) == (1, 3)
    assert found.acceptance == pytest.approx(4 / 8)
    assert found.length_over_rounds == pytest.approx((4 + 1 + 2) / 3)
    assert found.length_over_requests == pytest.approx(((4 + 1) / 2 + 2) / 2)
    assert found.plain_rate == pytest.approx(12 / 7)
    assert found.rate == pytest.approx(12 / 4)
    assert found.losslessness.status is Status.PASS
    assert not found.per_token


def test_two_identical_arms_have_no_speedup() -> None:
    rows = [row(prompt=f"p{i}", plain_seconds=i, seconds=i) for i in (1, 2, 3)]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert (found.speedup.low, found.speedup.value, found.speedup.high) == (1, 1, 1)
    assert found.slower == 0


def test_different_lengths_are_compared_per_token() -> None:
    [found] = summarise([row(tokens=[1, 2], near_tie="close")], ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx((2 / 4) / (1 / 2))
    assert found.per_token


def test_repeats_of_a_prompt_count_as_one() -> None:
    rows = [row(seconds=1.0), row(seconds=0.5, repeat=1)]
    [found] = summarise(rows, ["a"])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(math.sqrt(2 * 4))
    assert found.speedup.low is None


def test_decoders_without_rounds_have_no_acceptance() -> None:
    [found] = summarise([row()], ["a"])
    assert found.acceptance is found.length_over_rounds is found.length_over_requests is None


def test_rounds_that_drafted_nothing_count_as_target_calls() -> None:
    [found] = summarise([row(drafted=[0, 0], accepted=[0, 0])], ["a"])
    assert found.acceptance is None
    assert found.length_over_rounds == 1


def test_a_row_over_all_tasks_closes_the_list() -> None:
    rows = [row(d, task=t) for t in ("chat", "code") for d in ("a", "b")]
    found = [(s.task, s.decoder, s.prompts) for s in summarise(rows, ["b", "a"])]
    assert found[:2] == [("chat", "b", 1), ("chat", "a", 1)]
    assert found[-2:] == [("all", "b", 2), ("all", "a", 2)]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (row(), Status.PASS),
        (row(tokens=[1, 2, 9, 4], near_tie="close"), Status.PASS),
        (row(tokens=[1, 2, 9, 4], fault="far"), Status.FAIL),
        (row(tokens=[1, 2, 9, 4], identical=True), Status.FAIL),  # a row that contradicts itself
        (row(tokens=[], plain_tokens=[]), Status.ERROR),
        (row(tokens=[]), Status.FAIL),
        (row(tokens=[], near_tie="close"), Status.FAIL),
        (row(error="boom"), Status.ERROR),
        (row(identical=None), Status.INCONCLUSIVE),
    ],
)
def test_verdict_of_one_row(found: GenerationRow, status: Status) -> None:
    assert judge(columns([found]).table).status is status


def test_one_bad_row_decides() -> None:
    good, bad, broken = row(), row(tokens=[9], fault="far"), row(error="boom")
    assert judge(columns([good, bad, broken]).table).status is Status.FAIL
    assert judge(columns([good, broken]).table).status is Status.ERROR
    assert judge(columns([]).table).status is Status.INCONCLUSIVE
    assert judge(columns([good]).table, declared_lossy=True).status is Status.UNSUPPORTED


def test_repetition() -> None:
    assert repetition([1, 2, 3]) == 0
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([7] * 8) == pytest.approx(4 / 5)


def test_comparison_with_the_plain_arm_of_transformers() -> None:
    rows = [
        row("mine", "p1", plain_seconds=1.0, seconds=0.5),
        row("mine", "p2", plain_seconds=1.0, seconds=0.5),
        row("transformers-x", "p1", plain_seconds=2.0, seconds=1.0),
        row("transformers-y", "p1", plain_seconds=4.0, seconds=1.0, plain_tokens=[9, 2, 3, 4]),
    ]
    decoders = ["mine", "transformers-x", "transformers-y"]
    mine, x, y = compare(rows, decoders)
    assert baseline_of(decoders) == "transformers-x"
    assert (mine.plain.value, mine.speculative.value) == (pytest.approx(2), pytest.approx(4))
    assert mine.total == 1  # p2 has no counterpart
    assert (x.plain.value, x.speculative.value) == (pytest.approx(1), pytest.approx(2))
    assert (y.plain.value, y.same_text, y.total) == (pytest.approx(0.5), 0, 1)
    assert compare(rows, ["mine"]) == []
