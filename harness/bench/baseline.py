"""Whether a speedup is over a fair plain arm: what speculation can give at the most, and others.

A speedup is a ratio, and grows as well where its plain arm is slowed down, or where the other arm
knew the answer. Neither shows in the outputs. It shows in what a block of drafts can save, and
beside the plain arms of other decoders on the same prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import geometric_mean

import numpy as np

from harness.bench.columns import Table, by_unit, columns
from harness.record import GenerationRow

ABOVE = 1.2  # times what the target calls can give: clocks are not exact
SLOWER = 1.5  # times another plain arm's seconds per token on the same prompts


def of_baselines(
    rows: Sequence[GenerationRow], decoders: Sequence[str], draft_tokens: int | None
) -> Iterator[str]:
    """Doubts about each decoder's plain arm, one sentence each.

    Parameters
    ----------
    draft_tokens : int or None
        K, the most that one round may draft; None for any number.
    """
    found = columns(rows)
    timed = {name: found.of_decoder(name).timed for name in decoders}
    arms = {name: _plain_costs(table) for name, table in timed.items()}
    for name, table in timed.items():
        yield from _too_fast(name, table, draft_tokens)
        yield from _slow(name, arms)


def _too_fast(name: str, table: Table, draft_tokens: int | None) -> Iterator[str]:
    """A speedup that is more than its target calls can give.

    A call that verifies a block costs no less than one that gives a single token, so seconds per
    token fall by no more than tokens per target call (Leviathan et al. 2023, theorem 3.8 at c = 0).
    The calls are those that the decoder counts, else a whole block has been accepted each time.
    """
    known = table if draft_tokens else table.where(table["calls"] > 0)
    if not len(known):
        return
    calls = known["calls"]
    block = (draft_tokens or 0) + 1.0
    most = np.where(calls > 0, known["tokens"] / np.maximum(calls, 1), block)
    ratios = by_unit(known, known["plain_cost"] / known["cost"] / most)
    excess = math.exp(np.log(ratios).mean())
    if excess > ABOVE:
        yield (
            f"{name}: its speedup is {excess:.2f} times what its target calls can "
            "give: its plain arm is slower than it need be, or its other arm knew the answer"
        )


PlainCosts = dict[int, float]


def _slow(name: str, arms: dict[str, PlainCosts]) -> Iterator[str]:
    """A plain arm that is much slower than another decoder's."""
    own = arms[name]
    slower = {}
    for other, costs in arms.items():
        if other != name and (shared := own.keys() & costs.keys()):
            slower[other] = geometric_mean(own[at] / costs[at] for at in sorted(shared))
    fastest = max(slower, key=slower.__getitem__, default="")
    if fastest and slower[fastest] > SLOWER:
        yield (
            f"{name}: its plain arm takes {slower[fastest]:.2f} times as long as that of {fastest} "
            "on the same prompts: its speedup is over a slow baseline"
        )


def _plain_costs(table: Table) -> PlainCosts:
    """Plain seconds per token by prompt, the best of its repeats."""
    found: PlainCosts = {}
    for prompt, seconds in zip(table["prompt"].tolist(), table["plain_cost"].tolist(), strict=True):
        found[prompt] = min(seconds, found.get(prompt, seconds))
    return found
