"""Chi-square tests of counts against an exactly known law, with their power.

A trio: ``goodness_of_fit`` decides, ``smallest`` says what it can see, ``samples_needed`` what it
takes to see a given discrepancy. Pearson's X^2 and the likelihood ratio G, divided by Williams'
factor (1976); cells of small expectation are pooled, Holm keeps the error level over a family.

A family of many tests asks for levels far out in the tail, where counts are skewed and the
chi-square law is off: of X^2 with a group that expects 20, 19-fold at 3e-7. Two groups are the
worst case (more of them dilute what the smallest does), and of two the exact probability is known:
a p-value is never less than that. X^2 then exceeds its level by a third at most, and G by a
seventh, at any level and number of groups (``tests/test_chi_square.py`` computes it).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from harness.stats.levels import check_level

Floats = NDArray[np.float64]
MIN_EXPECTED = 20.0  # of a group


@dataclass(frozen=True)
class Result:
    """One test of one sample.

    Attributes
    ----------
    statistic, p_value : float
        G after Williams' factor.
    degrees : int
        Degrees of freedom, after pooling.
    samples : int
    """

    statistic: float
    p_value: float
    degrees: int
    samples: int


def _checked(law: Floats) -> Floats:
    law = np.asarray(law, dtype=np.float64)
    if law.size < 1:
        raise ValueError("a law of no cells")
    wrong = law[~(np.isfinite(law) & (law >= 0))]
    if len(wrong):
        raise ValueError(f"a probability is {wrong[0]}: it must be finite and not negative")
    if abs(law.sum() - 1) > 1e-4:
        raise ValueError(f"probabilities sum to {law.sum():.6g}, not 1")
    normalised: Floats = law / law.sum()
    return normalised


def pool(law: Floats, samples: int) -> NDArray[np.int64]:
    """Assign every cell to a group with an expectation of at least ``MIN_EXPECTED`` where possible.

    Cells that are large enough stay alone; the others are put together in order of their
    probability, so the grouping depends on the law alone and not on the counts.

    Returns
    -------
    ndarray [cells], int64
        Group of each cell, 0-based.
    """
    expected = law * samples
    order = np.argsort(-expected, kind="stable")
    filled = np.cumsum(expected[order])
    alone = int(np.count_nonzero(expected >= MIN_EXPECTED))
    ends, end = [*range(1, alone + 1)], alone  # of the groups, in that order
    while end < law.size:
        before = filled[end - 1] if end else 0.0
        end = int(np.searchsorted(filled, before + MIN_EXPECTED)) + 1
        if end <= law.size:
            ends.append(end)
    group = np.searchsorted(ends, np.arange(law.size), side="right")
    # What is left over, impossible cells among it, joins the last full group.
    groups = np.empty(law.size, dtype=np.int64)
    groups[order] = np.minimum(group, max(len(ends) - 1, 0))
    return groups


def goodness_of_fit(counts: NDArray[np.int64], law: Floats, statistic: str = "pearson") -> Result:
    """Test whether ``counts`` [cells] are draws from ``law`` [cells].

    Parameters
    ----------
    statistic : str
        ``pearson`` or ``log-likelihood`` (G), as ``scipy.stats.power_divergence`` calls them.

    Notes
    -----
    Counts in cells of probability zero are the support check's business; here they make the
    expectation fall short, and are therefore counted to the last group.
    """
    law = _checked(law)
    if len(counts) != len(law):
        raise ValueError(f"{len(counts)} counts for {len(law)} cells")
    if (counts < 0).any():
        raise ValueError(f"a count is {counts.min()}: it must not be negative")
    samples = int(counts.sum())
    if samples < 1:
        raise ValueError("no samples")
    groups = pool(law, samples)
    observed = np.bincount(groups, weights=counts)
    expected = np.bincount(groups, weights=law) * samples
    if len(expected) < 2:
        return Result(0.0, 1.0, 0, samples)
    found = _divergence(observed, expected, statistic)
    nominal = float(stats.chi2.sf(found, len(expected) - 1))
    p_value = max(nominal, tail_of_two(nominal, expected.min(), samples, statistic))
    return Result(found, p_value, len(expected) - 1, samples)


def _divergence(observed: NDArray[Any], expected: NDArray[Any], statistic: str) -> float:
    """Pearson's X^2, or G over Williams' factor, which makes its mean that of chi-square."""
    if statistic == "pearson":
        return float(((observed - expected) ** 2 / expected).sum())
    samples, degrees = expected.sum(), len(expected) - 1
    factor = 1 + ((samples / expected).sum() - 1) / (6 * samples * degrees)
    return float(2 * special.xlogy(observed, observed / expected).sum() / factor)


def tail_of_two(level: float, expected: float, samples: int, statistic: str) -> float:
    """Exact probability of a nominal p-value of at most ``level``, of two groups.

    Parameters
    ----------
    expected : float
        Of one of them; the law of its count is binomial.
    samples : int
        Of both.
    """
    if not 0 < level < 1:
        return level
    critical = stats.chi2.isf(level, 1) * (1 - 1e-9)  # what was observed is part of the tail
    both = np.array([expected, samples - expected])

    def divergence(count: int) -> float:
        return _divergence(np.array([count, samples - count]), both, statistic)

    near = int(expected)  # it falls up to there, and rises behind
    below = near - bisect_left(range(near + 1), critical, key=lambda i: divergence(near - i))
    above = near + 1 + bisect_left(range(near + 1, samples + 1), critical, key=divergence)
    law = samples, expected / samples
    return float(stats.binom.cdf(below, *law) + stats.binom.sf(above - 1, *law))


def effect(law: Floats, alternative: Floats, samples: int) -> tuple[float, int]:
    """Noncentrality per sample of ``alternative`` against ``law``, and the degrees of freedom.

    Pearson's divergence sum (a - p)^2 / p over the cells as pooled for that many samples.
    """
    p, a = _grouped(law, alternative, samples)
    return _size(p, a), len(p) - 1


def _grouped(law: Floats, alternative: Floats, samples: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both laws over the groups that ``law`` is pooled to."""
    law, alternative = _checked(law), _checked(alternative)
    if len(alternative) != len(law):
        raise ValueError(f"an alternative of {len(alternative)} cells for {len(law)} cells")
    if samples < 1:
        raise ValueError(f"{samples} samples: there must be at least 1")
    groups = pool(law, samples)
    return np.bincount(groups, weights=law), np.bincount(groups, weights=alternative)


def _size(p: Floats, a: Floats) -> float:
    return float(((a - p) ** 2 / p).sum())


def _critical(p: Floats, samples: int, alpha: float) -> float:
    """The value of G over groups with law ``p`` whose p-value is ``alpha``."""
    level = alpha
    for _ in range(4):  # what is above the level grows slowly as it falls
        exact = tail_of_two(level, p.min() * samples, samples, "log-likelihood")
        level = alpha * min(1.0, level / exact)
    return float(stats.chi2.isf(level, len(p) - 1))


def power(law: Floats, alternative: Floats, samples: int, alpha: float) -> float:
    """Probability that a test of level ``alpha`` on that many samples finds ``alternative``."""
    check_level(alpha)
    p, a = _grouped(law, alternative, samples)
    if len(p) < 2:
        return 0.0
    noncentrality = max(_size(p, a) * samples, 1e-12)
    return float(stats.ncx2.sf(_critical(p, samples, alpha), len(p) - 1, noncentrality))


def samples_needed(
    law: Floats, alternative: Floats, alpha: float, wanted: float = 0.99, most: int = 10_000_000
) -> int:
    """Smallest sample size (within 2%) at which ``power`` is ``wanted``; ``most`` if none is."""
    check_level(wanted, "the wanted power")
    low, high = 1, most
    if power(law, alternative, high, alpha) < wanted:
        return most
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        if power(law, alternative, middle, alpha) < wanted:
            low = middle
        else:
            high = middle
    return high


def smallest(
    law: Floats, direction: Floats, samples: int, alpha: float, wanted: float = 0.99
) -> float:
    """Smallest share e at which (1 - e) ``law`` + e ``direction`` is found with power ``wanted``.

    Mixing scales the discrepancy by e, hence the noncentrality by e^2, and pools the same cells.

    Returns
    -------
    float
        Infinite if ``direction`` itself (e = 1) would not be found.
    """
    check_level(alpha)
    check_level(wanted, "the wanted power")
    p, a = _grouped(law, direction, samples)
    size, degrees = _size(p, a), len(p) - 1
    if degrees < 1 or size <= 0:
        return math.inf
    critical = _critical(p, samples, alpha)

    def lacking(noncentrality: float) -> float:
        return float(stats.ncx2.sf(critical, degrees, noncentrality)) - wanted

    most = size * samples
    if lacking(most) < 0:
        return math.inf
    if wanted <= alpha:
        return 0.0
    found = optimize.brentq(lacking, 1e-12, most, rtol=1e-6)
    return math.sqrt(found / most)


def holm(p_values: Mapping[str, float], alpha: float) -> list[str]:
    """Names of the rejected hypotheses at family-wise level ``alpha`` (Holm 1979)."""
    check_level(alpha)
    for name, p_value in p_values.items():
        if not 0 <= p_value <= 1:
            raise ValueError(f"the p-value of {name} is {p_value}: it must be in [0, 1]")
    ordered: Sequence[tuple[str, float]] = sorted(p_values.items(), key=lambda item: item[1])
    rejected = []
    for rank, (name, p_value) in enumerate(ordered):
        if p_value > alpha / (len(ordered) - rank):
            break
        rejected.append(name)
    return rejected
