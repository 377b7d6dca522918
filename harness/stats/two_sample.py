"""Speculation on against speculation off, on the same engine: no exact oracle needed.

Each sequence of either arm is scored by J experts (sums of their log ratios). The scores need not
be right: under H0 (lossless) both arms have one law, whatever the scores measure. Two trios:
``permutation`` judges a fixed sample, ``PairedBets`` may stop after any pair. For outputs without
scores see ``mmd``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from harness.stats.levels import check_count, check_level, check_positive

Floats = NDArray[np.float64]
BATCH = 2**20  # marks held at a time while resampling: 8 MiB


@dataclass(frozen=True)
class Result:
    """One test of two arms; ``expert`` is the column that holds the maximum."""

    statistic: float
    p_value: float
    expert: int
    sizes: tuple[int, int]


def check_scores(name: str, values: ArrayLike) -> Floats:
    """``values`` as float64 [sequences, experts]; ValueError if there are none, or not finite."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"{name} has shape {scores.shape}: it must be [sequences, experts], >= 1")
    wrong = scores[~np.isfinite(scores)]
    if len(wrong):
        raise ValueError(f"a score of {name} is {wrong[0]}: it must be finite")
    return scores


def resamples_needed(alpha: float) -> int:
    """Fewest resamples with which a p-value, at least 1 / (resamples + 1), can be ``alpha``."""
    check_level(alpha)
    whole = math.floor(1 / alpha)
    return whole - 1 if 1 / whole <= alpha else whole


def _least_p_value(n: int, m: int) -> float:
    """Smallest p-value of n against m: with equal arms every split has a mirror image."""
    if min(n, m) < 2:
        return 1.0
    return (2 if n == m else 1) / float(special.binom(n + m, n))


def permuted(
    statistic: Callable[[Floats], Floats], n: int, m: int, resamples: int, seed: int
) -> tuple[float, float]:
    """Value and p-value of a statistic that is large where the arms differ.

    All splits of the n + m sequences are enumerated if there are no more than ``resamples``, else
    that many are drawn and the observed one is counted among them (Phipson and Smyth 2010): the
    p-value is never 0. An arm of one sequence shows nothing: p-value 1.

    Parameters
    ----------
    statistic : callable
        Of marks [..., n + m], float64, 1 where the sequence is in the first arm; gives [...].
        Its values must be exact where ties are (rounded, or of whole numbers).
    """
    check_count("resamples", resamples)
    total = n + m

    def of_split(chosen: NDArray[Any], _: NDArray[Any], axis: int = -1) -> Floats:
        marks = np.zeros((*chosen.shape[:-1], total))
        np.put_along_axis(marks, chosen.astype(np.intp), 1.0, axis=axis)
        return statistic(marks)

    arms = np.arange(n), np.arange(n, total)
    if min(n, m) < 2:
        return float(of_split(*arms)), 1.0
    found = stats.permutation_test(
        arms,
        of_split,
        permutation_type="independent",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, BATCH // total),
        alternative="greater",
        random_state=np.random.default_rng(seed),
    )
    return float(found.statistic), float(found.pvalue)


def permutation(
    one: ArrayLike,
    other: ArrayLike,
    resamples: int = 9999,
    seed: int = 0,
    alpha: float | None = None,
) -> Result:
    """Test whether two arms have one law, by the expert whose mean score differs most.

    Parameters
    ----------
    one, other : array_like [n, J], [m, J], float64
        Scores, exchangeable between the arms under H0: of one request, or of requests drawn for
        each arm by itself. Arms that share a list of requests belong into ``PairedBets``.
    alpha : float, optional
        Level the caller will test at; refused if no p-value can be as small.

    Returns
    -------
    Result
        The statistic is max_j |mean(one_j) - mean(other_j)| / sd_j, with sd_j over both arms
        together: no permutation changes it, so it can be divided by once. Columns without any
        spread count 0. Maximum over the family under permutation: Westfall and Young 1993.

    Raises
    ------
    ValueError
        NaN, infinite or no scores, unequal J, resamples < 1, alpha out of reach.
    """
    one, other = check_scores("one", one), check_scores("other", other)
    if one.shape[1] != other.shape[1]:
        raise ValueError(f"one has {one.shape[1]} experts, other has {other.shape[1]}")
    check_count("resamples", resamples)
    n, m = len(one), len(other)
    if alpha is not None:
        if resamples < resamples_needed(alpha):
            raise ValueError(
                f"alpha is {alpha}, and {resamples} resamples cannot reach it: "
                f"it takes {resamples_needed(alpha)}"
            )
        if _least_p_value(n, m) > alpha:
            raise ValueError(
                f"alpha is {alpha}, and {n} sequences against {m} cannot reach it: "
                f"no p-value is below {_least_p_value(n, m):.3g}"
            )
    pooled = np.concatenate([one, other])
    # By the range first: squares neither overflow nor vanish, and a column of equal numbers, whose
    # mean may be off by an ulp, becomes 0.
    spread = np.ptp(pooled, axis=0)
    standard = (pooled - pooled.mean(0)) / np.where(spread > 0, spread, np.inf)
    standard /= np.where(spread > 0, np.sqrt((standard**2).mean(0)), 1.0)

    def differences(marks: Floats) -> Floats:
        # The columns sum to 0: the first arm's sum S gives S / n - (-S / m).
        size: Floats = np.abs(marks @ standard) * (1 / n + 1 / m)
        return size.round(12)  # order of summation must not part what is tied

    value, p_value = permuted(lambda marks: differences(marks).max(-1), n, m, resamples, seed)
    leader = int(differences(np.repeat([1.0, 0.0], [n, m])).argmax())
    return Result(value, p_value, leader, (n, m))


def permutation_smallest(n: int, m: int, experts: int, alpha: float, power: float) -> float:
    """Smallest difference of means, in standard deviations of an arm, that ``permutation`` finds.

    Two-sided two-sample t-test at alpha / J (Bonferroni), whose shift is taken as normal:
    (t_{n+m-2, 1-alpha/2J} + z_power) sqrt(1/n + 1/m). The maximum's own permutation law is never
    wider than Bonferroni has it. ``inf`` if the arms have too few splits for any p-value <= alpha.
    """
    for name, count in (("n", n), ("m", m), ("experts", experts)):
        check_count(name, count)
    check_level(alpha)
    check_level(power, "power")
    if _least_p_value(n, m) > alpha:
        return math.inf
    quantiles = stats.t.isf(alpha / (2 * experts), n + m - 2) + stats.norm.ppf(power)
    return max(0.0, float(quantiles * math.sqrt(1 / n + 1 / m)))


def permutation_samples_needed(difference: float, experts: int, alpha: float, power: float) -> int:
    """Smallest size of each arm at which ``permutation_smallest`` is at most ``difference``."""
    check_positive("difference", difference)
    check_count("experts", experts)
    check_level(alpha)
    check_level(power, "power")
    quantiles = stats.norm.isf(alpha / (2 * experts)) + stats.norm.ppf(power)
    size = max(1, math.floor(2 * max(0.0, float(quantiles) / difference) ** 2))
    while permutation_smallest(size, size, experts, alpha, power) > difference:
        size += 1  # a few steps: Student's tail is all that is missing
    return size
