"""Maximum mean discrepancy between two sets of token ids, for engines that show nothing else.

A trio: ``hamming_mmd`` decides, ``mmd_smallest`` and ``mmd_samples_needed`` say what is seen.
The kernel k(x, y) is the share of equal positions (Gao, Liang and Guestrin 2024, "Model equality
testing: which model is this API serving?").

What it sees is the law of each position by itself: MMD^2 is the mean over positions of
sum_v (p_l(v) - q_l(v))^2. A fault that only ties positions to one another, or answers to one
another, is invisible to it at any sample size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from harness.stats.levels import check_count, check_level, check_positive
from harness.stats.two_sample import Floats, permuted


@dataclass(frozen=True)
class Result:
    """One test of two arms; ``statistic`` is the biased estimate of MMD^2, in [0, 2]."""

    statistic: float
    p_value: float
    sizes: tuple[int, int]


def _ids(name: str, values: ArrayLike) -> NDArray[Any]:
    ids = np.asarray(values)
    if ids.ndim != 2 or not ids.size:
        raise ValueError(f"{name} has shape {ids.shape}: it must be [sequences, positions], >= 1")
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name} is of {ids.dtype}: token ids must be whole numbers")
    return ids


def hamming_mmd(one: ArrayLike, other: ArrayLike, resamples: int = 9999, seed: int = 0) -> Result:
    """Test whether two arms of token ids have one law at every position.

    Parameters
    ----------
    one, other : array_like [n, L], [m, L], int
        Token ids, shorter outputs padded with -1: their end is a token like others. Exchangeable
        between the arms under H0, as in ``permutation``.

    Returns
    -------
    Result
        MMD_b^2 = mean k(x, x') + mean k(y, y') - 2 mean k(x, y) over all pairs, the biased one
        (Gretton et al. 2012, JMLR 13, equation 5). It is defined for one sequence, too, and at
        n = m it has the p-value of the unbiased one: permutation sees no difference.

    Raises
    ------
    ValueError
        No ids, ids that are not whole numbers, unequal L, resamples < 1.
    """
    one, other = _ids("one", one), _ids("other", other)
    if one.shape[1] != other.shape[1]:
        raise ValueError(f"one has {one.shape[1]} positions, other has {other.shape[1]}")
    (n, positions), m = one.shape, len(other)
    pooled = np.concatenate([one, other]).astype(np.float64)
    # Numbers of equal positions. Their sums are whole, so that ties are exact; in float32 as long
    # as it holds these sums, since the products below are most of the time.
    exact = np.float32 if (n + m) * positions < 2**24 else np.float64
    equal = np.rint((1 - cdist(pooled, pooled, "hamming")) * positions).astype(exact)
    rows = equal.sum(1, dtype=np.float64)
    everything = rows.sum()

    def statistic(marks: Floats) -> Floats:
        # v' K v for v = marks (1/n + 1/m) - 1/m, times (n m)^2 / (n + m) and without its constant.
        within = ((marks.astype(exact) @ equal) * marks).sum(-1)
        value: Floats = (n + m) * within - 2 * n * (marks @ rows)
        return value

    value, p_value = permuted(statistic, n, m, resamples, seed)
    square = ((n + m) * value + n**2 * everything) / (positions * (n * m) ** 2)
    return Result(max(0.0, float(square)), p_value, (n, m))


def _quantiles(alpha: float, power: float) -> float:
    check_level(alpha)
    check_level(power, "power")
    return 1 + math.sqrt(-2 * math.log(alpha)) + math.sqrt(-2 * math.log1p(-power))


def mmd_smallest(n: int, m: int, alpha: float, power: float) -> float:
    """Smallest MMD (not its square) that is found at any rate, whatever the laws.

    r (1 + sqrt(2 log 1/alpha) + sqrt(2 log 1/(1-power))) with r = sqrt(1/n + 1/m). The first two
    terms are the threshold of Gretton et al. 2012, Corollary 9 (K = 1; r is sqrt(2/m) at n = m, and
    E MMD_b^2 <= r^2 under H0 at any n, m). The third: E MMD_b >= MMD, and MMD_b falls short of
    its expectation by e with probability <= exp(-e^2 / 2r^2), the inequality (McDiarmid's) inside
    Theorem 7. The permutation threshold obeys the same bound with sqrt(log 1/alpha) in place of
    sqrt(2 log 1/alpha), but for terms of 1/n: McDiarmid's inequality without replacement
    (El-Yaniv and Pechyony 2009, Lemma 2), so the claim holds for it, and is a cautious one.

    ``inf`` above sqrt(2), the largest MMD there is.
    """
    check_count("n", n)
    check_count("m", m)
    found = _quantiles(alpha, power) * math.sqrt(1 / n + 1 / m)
    return found if found <= math.sqrt(2) else math.inf


def mmd_samples_needed(discrepancy: float, alpha: float, power: float) -> int:
    """Size of each arm at which ``mmd_smallest`` is at most ``discrepancy`` (an MMD)."""
    check_positive("discrepancy", discrepancy)
    if discrepancy > math.sqrt(2):
        raise ValueError(f"discrepancy is {discrepancy}: no MMD is above sqrt(2)")
    return math.ceil(2 * (_quantiles(alpha, power) / discrepancy) ** 2)
