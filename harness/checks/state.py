"""What the target keeps of a text besides rows of keys and values, greedily looked at.

An attention window and a recurrent state are right for single tokens in many a decoder that has
them wrong for a block, or does not take them back with the rejected tokens. For position ids see
``harness.checks.positions``.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.minimise import may_be_blamed
from harness.checks.prompts import random_prompt, repetitive_prompt
from harness.checks.subject import Refused, Subject, check
from harness.contract import Request
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.cache import sliding_window
from reference_impl.recurrent import is_recurrent

Prompt = Callable[[ModelPair, int, int], tuple[int, ...]]
"""Pair, length and seed -> prompt."""

WIDEST = 512  # tokens of a window that is swept, and of a text that is


@check("greedy.window", "greedy")
def window(subject: Subject, budget: Budget) -> Verdict:
    """Texts that stay within the target's window, that reach it within a block, and that are
    beyond it from the start, over K.

    Kills alone: window_untrimmed, window_misaligned, window_forgotten, window_forgotten_subtle,
    window_too_narrow, window_too_narrow_subtle.
    """
    name, pair = "greedy.window", subject.pair
    size = sliding_window(pair.target.config.get_text_config())
    if not 0 < size <= WIDEST:
        raise Unsupported(
            f"the target of {pair.name} has no sliding window: use --pair tiny-window"
        )
    within = [  # half of it, for one that is too narrow
        _request(subject, length, max(1, size // 2 + 1 - length), k, budget.seed + seed)
        for k in budget.draft_tokens
        for seed in range(8)
        for length in (1, 2)
    ]
    beyond = [
        _request(subject, length, k + budget.new_tokens // 2, k, budget.seed + seed)
        for k in budget.draft_tokens
        for seed in range(budget.prompts)
        for length in (size - k, size - 1, size, size + 1, size + k, 3 * size)
        if length > 0
    ]
    verdict = greedy.judge_all(
        subject,
        name,
        beyond,
        f"any differing token of texts that reach the window of {size} in any place of a block",
        together=True,
    )
    elsewhere = (FaultClass.CACHE, FaultClass.BATCH)
    if not may_be_blamed(verdict) or verdict.fault_class in elsewhere:
        return verdict
    if greedy.judge_all(subject, name, within, "", together=True).status is Status.FAIL:
        return verdict
    return _named(verdict, "a block is verified with another window than a single token")


@check("greedy.recurrent", "greedy")
def recurrent(subject: Subject, budget: Budget) -> Verdict:
    """A target with a recurrent state: rejections, full blocks and rounds without drafts.

    A decoder that says of such a target that it cannot speculate on it is not at fault.

    Kills alone: state_not_restored, state_not_restored_subtle, state_half_restored,
    first_slot_read, empty_round_uncommitted.
    """
    name, pair = "greedy.recurrent", subject.pair
    if not is_recurrent(pair.target):
        raise Unsupported(
            f"the target of {pair.name} has no recurrent state: use --pair tiny-mamba"
        )
    tokens = min(2 * budget.new_tokens, 48)
    requests = [
        _request(subject, length, tokens, k, budget.seed + seed, make)
        for k in budget.draft_tokens
        for seed in range(budget.prompts)
        for length, make in ((1, random_prompt), (7, random_prompt), (12, repetitive_prompt))
    ]
    try:
        subject.ask_one(requests[0])
    except Refused as error:
        if not isinstance(error.__cause__, (ValueError, NotImplementedError)):
            raise
        raise Unsupported(str(error)) from error
    verdict = greedy.judge_all(
        subject, name, requests, f"any differing token of {tokens} in a row", together=True
    )
    if verdict.fault_class is not FaultClass.CACHE:
        return verdict
    return _named(verdict, "the recurrent state is not taken back to what was kept")


def _request(
    subject: Subject, length: int, tokens: int, k: int, seed: int, make: Prompt = random_prompt
) -> Request:
    prompt = make(subject.pair, length, seed)
    return Request(prompt=prompt, max_new_tokens=tokens, draft_tokens=k)


def _named(verdict: Verdict, likely: str) -> Verdict:
    return replace(verdict, fault_class=FaultClass.CACHE, likely_fault=likely)
