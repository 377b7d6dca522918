"""Decoders that want what they have not earned: which check, or which doubt, is in their way."""

from __future__ import annotations

import functools
from collections.abc import Callable

import cheats
import pytest

from harness.bench.baseline import of_baselines
from harness.bench.columns import columns
from harness.bench.honesty import doubts
from harness.bench.measure import Settings, measure, schedule
from harness.bench.summary import judge
from harness.bench.workload import load_workload
from harness.checks import acceptance, greedy, logprobs, metrics, speed_evidence
from harness.checks.budget import Budget
from harness.checks.subject import Refused, Subject
from harness.contract import Completion, Decoder, Request
from harness.models import ModelPair, load_pair
from harness.record import GenerationRow
from harness.verdict import FaultClass, Status
from tests.timed_rows import row

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(3,), prompts=1, new_tokens=16, samples=2000, tables=1, alpha=1e-6)
K = 3


def timed(
    cheat: Callable[[ModelPair], Decoder], decoder: str = "cheat", prompts: int = 8
) -> list[GenerationRow]:
    """Rows of a benchmark on a tiny pair; what they show of time is far from close."""
    pair = load("tiny")
    work = load_workload(pair, ["chat", "code"], prompts // 2, 24)
    settings = Settings(max_new_tokens=24, draft_tokens=K, vocab_size=pair.vocab_size)
    made = {decoder: cheat(pair)}
    judged = functools.partial(greedy.problem_of, pair)
    return list(measure(made, schedule([decoder], work, 1, 7), settings, judged))


# Outputs


def test_one_that_is_right_up_to_a_length_is_wrong_in_longer_outputs() -> None:
    decoder = cheats.right_when_short(load("tiny"), most=20)
    right = greedy.identity(Subject(decoder, load("tiny"), "x"), BUDGET)
    assert right.passed  # of 16 tokens each, and so it says
    rows = timed(lambda pair: cheats.right_when_short(pair, most=20))
    # The outputs that are timed are judged themselves.
    assert judge(columns(rows).table).status is Status.FAIL


def test_both_arms_wrong_alike_are_not_lossless() -> None:
    rows = timed(cheats.wrong_alike)
    assert judge(columns(rows).table).status is Status.ERROR
    assert all("plain decoding is not the target's" in found.error for found in rows)


def test_who_knows_the_prompts_fails_by_another_seed() -> None:
    decoder = cheats.knows_the_prompts(load("tiny"))
    subject = Subject(decoder, load("tiny"), "x")
    other = Budget(draft_tokens=(3,), prompts=1, new_tokens=16, samples=100, tables=1, seed=5)
    assert greedy.identity(subject, other).status is Status.FAIL


# Counts and log probabilities


def test_false_log_probabilities_fail() -> None:
    decoder = cheats.flattering_logprobs(load("tiny"))
    verdict = logprobs.values(Subject(decoder, load("tiny"), "x"), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.LOGPROBS)


def test_acceptance_that_is_not_the_drafts_fails() -> None:
    subject = Subject(cheats.in_disguise(load("tiny-bad")), load("tiny-bad"), "x")
    assert acceptance.expected(subject, BUDGET).status is Status.FAIL


# Speedups


def test_a_speedup_that_no_block_can_give_is_doubted() -> None:
    rounds = {"drafted": [3], "accepted": [3]}  # 4 tokens of one call
    fair = [row(seconds=0.5, plain_seconds=1.9, **rounds)]
    fast = [row(seconds=0.1, plain_seconds=1.9, **rounds)]
    assert list(of_baselines(fair, ["a"], K)) == []
    (found,) = of_baselines(fast, ["a"], K)
    assert "a: its speedup is 4.75 times what its target calls can give" in found
    (unknown,) = of_baselines([row(seconds=0.1, plain_seconds=1.9)], ["a"], K)
    assert "4.75 times" in unknown  # at most K + 1 tokens of a call
    assert list(of_baselines([row(seconds=0.1, plain_seconds=1.9)], ["a"], None)) == []


def test_a_plain_arm_much_slower_than_anothers_is_named() -> None:
    rows = [
        row(name, prompt=prompt, seconds=1.0, plain_seconds=plain)
        for prompt in ("p1", "p2")
        for name, plain in (("a", 1.0), ("b", 1.4), ("c", 3.0))
    ]
    (found,) = of_baselines(rows, ["a", "b", "c"], None)
    assert found.startswith("c: its plain arm takes 3.00 times as long as that of a")


def test_a_plain_arm_that_sleeps_is_doubted() -> None:
    rows = timed(lambda pair: cheats.sleeps(pair, seconds=0.5), prompts=4)
    found = doubts(rows, ["cheat"], K, False)
    assert any("what its target calls can give" in line for line in found)


def test_answers_that_are_remembered_from_the_plain_arm_are_doubted() -> None:
    rows = timed(cheats.remembers)
    assert judge(columns(rows).table).status is Status.PASS  # they are the target's
    found = doubts(rows, ["cheat"], K, False)
    assert any("its other arm knew the answer" in line for line in found)


# Errors


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unspeakable(), "raised Unspeakable: (its message raised ValueError)"),
        (RuntimeError("\ud800"), "raised RuntimeError: ?"),
    ],
)
def test_an_error_without_words_is_an_error(error: Exception, words: str) -> None:
    class Raises:
        capabilities = frozenset({"greedy"})

        def generate(self, requests: list[Request]) -> list[Completion]:
            raise error

    with pytest.raises(Refused) as caught:
        Subject(Raises(), load("tiny"), "x").ask([Request(prompt=(1,), max_new_tokens=1)])
    assert words in str(caught.value)


def test_metrics_that_flatter_fail_where_no_draft_is_right() -> None:
    pair = load("tiny-hostile")
    verdict = metrics.wrong_drafts(Subject(cheats.flattering_metrics(pair), pair, "x"), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.METRICS)


def test_drafting_nothing_is_no_speculation() -> None:
    pair = load("tiny-self")
    decoder = cheats.right_when_short(pair, most=100)
    verdict = speed_evidence.target_calls(Subject(decoder, pair, "x"), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.SPEED)
