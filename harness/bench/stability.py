"""Whether a run was steady: pure functions of its rows.

Pairing takes out what slows both arms down. It does not take out what depends on the order, nor
what comes and goes within seconds: that is looked for here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from harness.bench.columns import Floats, Table, columns, ratios
from harness.bench.estimate import Estimate, geometric_mean
from harness.record import GenerationRow

ALPHA = 0.01  # of the tests of order in one record, shared among its decoders
FEWEST = 5  # rows led by either arm: with fewer, no order is beyond chance at this level
REPEATED = 0.1  # standard deviation of the log of a plain time between repeats of a prompt
WHAT_TO_DO = "close other programs, or use --profile full"


def unsteady(rows: Sequence[GenerationRow], decoders: Sequence[str]) -> list[str]:
    """Signs of an unsteady run, one sentence each, with what to do."""
    found: list[str] = []
    for decoder in decoders:
        own = columns(rows).of_decoder(decoder).timed
        found += _order(decoder, own, ALPHA / len(decoders))
        found += _spread(decoder, own)
    return found


def order_p_value(table: Table) -> float:
    """Whether the ratio of a pair depends on which arm went first; 1 where there are too few.

    Mann and Whitney's test on log ratios, which needs no law of the noise. That prompts differ
    makes it miss small effects, and never see one that is not there: who leads is set in advance.
    """
    led = _led(table)
    if min(map(len, led)) < FEWEST:
        return 1.0
    from scipy.stats import mannwhitneyu  # takes a second to import

    return float(mannwhitneyu(*led).pvalue)


def repeat_spread(table: Table) -> float | None:
    """Standard deviation of log plain seconds per token between repeats of one prompt, pooled.

    None where no prompt was measured twice.
    """
    _, place, repeats = np.unique(table["prompt"], return_inverse=True, return_counts=True)
    freedom = int((repeats - 1).sum())
    if not freedom:
        return None
    times = np.log(table["plain_cost"])
    away = times - (np.bincount(place, times) / repeats)[place]
    return math.sqrt(float((away**2).sum()) / freedom)


def _led(table: Table) -> tuple[Floats, Floats]:
    """Log ratios, plain over speculative, of the pairs that either arm led: the plain one first."""
    ratios = np.log(table["plain_cost"] / table["cost"])
    return ratios[table["plain_leads"]], ratios[~table["plain_leads"]]


def _order(decoder: str, table: Table, alpha: float) -> Iterator[str]:
    if (p := order_p_value(table)) >= alpha:
        return
    means = [math.exp(ratios.mean()) for ratios in _led(table)]
    yield (
        f"{decoder}: the speedup depends on which arm went first, {means[0]:.2f}x after "
        f"the plain arm and {means[1]:.2f}x before it (p = {p:.1g}, alpha {alpha:g}): {WHAT_TO_DO}"
    )


def _spread(decoder: str, table: Table) -> Iterator[str]:
    """A plain arm that takes other times when it is measured again than its interval allows."""
    spread = repeat_spread(table)
    found = geometric_mean(ratios(table)) if spread else Estimate(1.0)
    if spread is None or found.low is None or found.high is None:
        return
    allowed = math.log(found.high / found.low) / 2
    if spread > max(REPEATED, allowed):
        yield (
            f"{decoder}: plain decoding of one prompt takes times that differ by "
            f"{math.expm1(spread):.0%} between its repeats, and the interval of the speedup allows "
            f"{math.expm1(allowed):.0%}: it holds only as far as both arms were slowed down alike, "
            f"and tokens per second do not: {WHAT_TO_DO}"
        )
