"""Figures of one row, and of a prompt over its repeats: pure functions.

A ratio is always of seconds per token, plain over speculative, of one prompt decoded by both arms
one right after the other. Where the outputs are identical, that is the ratio of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import geometric_mean as geometric

from harness.record import GenerationRow
from harness.verdict import Status


def timeable(row: GenerationRow) -> bool:
    """Whether both arms of a row gave output, and in good form."""
    return bool(
        not row.error
        and row.tokens
        and row.plain_tokens
        and min(row.seconds, row.plain_seconds) > 0
    )


def plain_cost(row: GenerationRow) -> float:
    """Seconds per token of the plain arm."""
    return row.plain_seconds / len(row.plain_tokens)


def cost(row: GenerationRow) -> float:
    """Seconds per token of the speculative arm."""
    return row.seconds / len(row.tokens)


def unit(row: GenerationRow) -> tuple[str, str]:
    """What counts once in a mean, however often it was repeated: a prompt, or a batch of them."""
    return row.task, row.batch or row.prompt_id


def ratios_by_prompt(
    rows: Sequence[GenerationRow],
    numerator: Callable[[GenerationRow], float],
    denominator: Callable[[GenerationRow], float],
) -> dict[tuple[str, str], float]:
    """One ratio a prompt, or a batch of them: the geometric mean over its repeats."""
    ratios = [(unit(row), numerator(row) / denominator(row)) for row in rows]
    once = dict(ratios)
    if len(once) == len(ratios):
        return once
    repeats: dict[tuple[str, str], list[float]] = {}
    for prompt, ratio in ratios:
        repeats.setdefault(prompt, []).append(ratio)
    return {prompt: geometric(values) for prompt, values in repeats.items()}


def verdict_of(row: GenerationRow) -> Status:
    """Judge one row by its ids; a near tie excuses a difference, and never an empty output."""
    if row.error or not row.plain_tokens:
        return Status.ERROR
    if row.identical is None:
        return Status.INCONCLUSIVE
    same = row.identical and row.tokens == row.plain_tokens
    excused = bool(row.near_tie and row.tokens and not row.fault)
    return Status.PASS if same or excused else Status.FAIL


def repetition(tokens: Sequence[int], n: int = 4) -> float:
    """Share of the n-grams that occurred before in the same text."""
    total = len(tokens) - n + 1
    grams = set(zip(*(tokens[i:] for i in range(n)), strict=False))
    return 1 - len(grams) / total if grams else 0.0
