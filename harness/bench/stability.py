"""Whether a run was steady: pure functions of its rows.

Pairing takes out what slows both arms down. It does not take out what depends on the order, nor
what comes and goes within seconds: that is looked for here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from harness.bench.estimate import Estimate, geometric_mean
from harness.bench.summary import cost, plain_cost, prompt_ratios, timeable
from harness.record import GenerationRow

ALPHA = 0.01  # of the tests of order in one record, shared among its decoders
FEWEST = 5  # rows led by either arm: with fewer, no order is beyond chance at this level
REPEATED = 0.1  # standard deviation of the log of a plain time between repeats of a prompt
WHAT_TO_DO = "close other programs, or use --profile full"


def unsteady(rows: Sequence[GenerationRow], decoders: Sequence[str]) -> list[str]:
    """Signs of an unsteady run, one sentence each, with what to do."""
    found: list[str] = []
    for decoder in decoders:
        own = [row for row in rows if row.decoder == decoder and timeable(row)]
        found += _order(own, ALPHA / len(decoders))
        found += _spread(own)
    return found


def order_p_value(rows: Sequence[GenerationRow]) -> float:
    """Whether the ratio of a pair depends on which arm went first; 1 where there are too few.

    Mann and Whitney's test on log ratios, which needs no law of the noise. That prompts differ
    makes it miss small effects, and never see one that is not there: who leads is set in advance.
    """
    led = [[_log_ratio(r) for r in rows if r.first == arm] for arm in ("plain", "speculative")]
    if min(map(len, led)) < FEWEST:
        return 1.0
    from scipy.stats import mannwhitneyu  # takes a second to import

    return float(mannwhitneyu(*led).pvalue)


def repeat_spread(rows: Sequence[GenerationRow]) -> float | None:
    """Standard deviation of log plain seconds per token between repeats of one prompt, pooled.

    None where no prompt was measured twice.
    """
    times: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        times.setdefault((row.task, row.prompt_id), []).append(math.log(plain_cost(row)))
    repeated = [values for values in times.values() if len(values) > 1]
    if not repeated:
        return None
    freedom = sum(len(values) - 1 for values in repeated)
    squares = sum((len(values) - 1) * stdev(values) ** 2 for values in repeated)
    return math.sqrt(squares / freedom)


def _log_ratio(row: GenerationRow) -> float:
    return math.log(plain_cost(row) / cost(row))


def _order(rows: Sequence[GenerationRow], alpha: float) -> Iterator[str]:
    if (p := order_p_value(rows)) >= alpha:
        return
    means = [
        math.exp(fmean([_log_ratio(row) for row in rows if row.first == arm]))
        for arm in ("plain", "speculative")
    ]
    yield (
        f"{rows[0].decoder}: the speedup depends on which arm went first, {means[0]:.2f}x after "
        f"the plain arm and {means[1]:.2f}x before it (p = {p:.1g}, alpha {alpha:g}): {WHAT_TO_DO}"
    )


def _spread(rows: Sequence[GenerationRow]) -> Iterator[str]:
    """A plain arm that takes other times when it is measured again than its interval allows."""
    spread = repeat_spread(rows)
    found = geometric_mean(prompt_ratios(rows, plain_cost, cost)) if spread else Estimate(1.0)
    if spread is None or found.low is None or found.high is None:
        return
    allowed = math.log(found.high / found.low) / 2
    if spread > max(REPEATED, allowed):
        yield (
            f"{rows[0].decoder}: plain decoding of one prompt takes times that differ by "
            f"{math.expm1(spread):.0%} between its repeats, and the interval of the speedup allows "
            f"{math.expm1(allowed):.0%}: it holds only as far as both arms were slowed down alike, "
            f"and tokens per second do not: {WHAT_TO_DO}"
        )
