"""Means over prompts, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 9999
MANY = 500  # values from which on the bootstrap is not drawn but expanded
RESAMPLING_SEED = 0  # the same rows give the same interval


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts.

    Attributes
    ----------
    value : float
    low, high : float or None
        95% bootstrap interval; None where a single prompt gives none.
    """

    value: float
    low: float | None = None
    high: float | None = None


def geometric_mean(ratios: Sequence[float]) -> Estimate:
    """Geometric mean of positive ratios, one a prompt, and its bootstrap interval."""
    found = mean(np.log(np.asarray(ratios, dtype=np.float64)).tolist())
    if found.low is None or found.high is None:
        return Estimate(math.exp(found.value))
    return Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high))


def mean(values: Sequence[float]) -> Estimate:
    """Mean of figures, one a prompt, and its bootstrap interval.

    The bootstrap is the bias-corrected and accelerated one (Efron 1987), over prompts: they are
    what a new measurement would draw anew. Of many, its expansion takes the time and the memory
    of one pass instead of ``RESAMPLES``.
    """
    sample = np.asarray(values, dtype=np.float64)
    value = float(sample.mean())
    if len(sample) < 2:
        return Estimate(value)
    if np.ptp(sample) == 0:
        return Estimate(value, value, value)
    if len(sample) >= MANY:
        return Estimate(value, *_expanded(sample))
    from scipy.stats import bootstrap  # takes a second to import

    def interval(method: str) -> tuple[float, float]:
        found = bootstrap(
            (sample,),
            np.mean,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method=method,
            random_state=np.random.default_rng(RESAMPLING_SEED),
        ).confidence_interval
        return float(found.low), float(found.high)

    low, high = interval("BCa")
    if math.isnan(low) or math.isnan(high):  # the acceleration is undefined for some samples
        low, high = interval("percentile")
    return Estimate(value, low, high)


def _expanded(sample: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """The interval to second order in 1 / sqrt(n), without resampling.

    For a mean, bias correction and acceleration are both skewness / (6 sqrt(n)) (Efron 1987), and
    the quantiles of resampled means are those of Cornish and Fisher (Hall 1992, section 3.10).
    """
    deviations = sample - sample.mean()
    spread = float(np.sqrt((deviations**2).mean()))
    skew = float((deviations**3).mean()) / spread**3 / (6 * math.sqrt(len(sample)))

    def end(level: float) -> float:
        shifted = skew + NormalDist().inv_cdf(level)
        z = skew + shifted / (1 - skew * shifted)
        moved = z + skew * (z**2 - 1)
        return float(sample.mean()) + spread / math.sqrt(len(sample)) * moved

    return end((1 - CONFIDENCE) / 2), end((1 + CONFIDENCE) / 2)
