"""Means over prompts, and ratios of such means, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 9999
MANY = 500  # values from which on the bootstrap is not drawn but expanded
ROUNDING = 1e-12  # values that differ by less, relatively, are the same one
RESAMPLING_SEED = 0  # the same rows give the same interval

Sample = np.ndarray[tuple[int], np.dtype[np.float64]]
Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts.

    Attributes
    ----------
    value : float
    low, high : float or None
        Bootstrap interval, of 95% unless said otherwise; None where a single prompt gives none.
    """

    value: float
    low: float | None = None
    high: float | None = None


def geometric_mean(ratios: Values, confidence: float = CONFIDENCE) -> Estimate:
    """Geometric mean of positive ratios, one a prompt, and its bootstrap interval."""
    return _exponential(mean(_logs(ratios), confidence))


def ratio_of_means(above: Values, below: Values, confidence: float = CONFIDENCE) -> Estimate:
    """Geometric mean of some ratios over that of others, which are of other prompts."""
    return _exponential(difference(_logs(above), _logs(below), confidence))


def mean(values: Values, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of figures, one a prompt, and its bootstrap interval.

    The bootstrap is the bias-corrected and accelerated one (Efron 1987), over prompts: they are
    what a new measurement would draw anew. Of many, its expansion takes the time and the memory
    of one pass instead of ``RESAMPLES``.
    """
    return _estimate([np.asarray(values, dtype=np.float64)], confidence)


def difference(values: Values, others: Values, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of some figures less that of others, which are of other prompts: both are resampled."""
    samples = [np.asarray(values, dtype=np.float64), -np.asarray(others, dtype=np.float64)]
    return _estimate(samples, confidence)


def _logs(ratios: Values) -> NDArray[np.float64]:
    return np.log(np.asarray(ratios, dtype=np.float64))


def _exponential(found: Estimate) -> Estimate:
    if found.low is None or found.high is None:
        return Estimate(math.exp(found.value))
    return Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high))


def _estimate(samples: list[Sample], confidence: float) -> Estimate:
    """The sum of the means of independent samples."""
    value = float(sum(sample.mean() for sample in samples))
    if min(map(len, samples)) < 2:
        return Estimate(value)
    if all(np.ptp(sample) <= ROUNDING * np.abs(sample).max() for sample in samples):
        return Estimate(value, value, value)
    if min(map(len, samples)) >= MANY:
        return Estimate(value, *_expanded(samples, confidence))
    from scipy.stats import bootstrap  # takes a second to import

    def total(*drawn: Any, axis: int = -1) -> Any:
        return sum(np.mean(sample, axis=axis) for sample in drawn)

    def interval(method: str) -> tuple[float, float]:
        found = bootstrap(
            samples,
            total,
            n_resamples=RESAMPLES,
            confidence_level=confidence,
            method=method,
            vectorized=True,
            random_state=np.random.default_rng(RESAMPLING_SEED),
        ).confidence_interval
        return float(found.low), float(found.high)

    low, high = interval("BCa")
    if math.isnan(low) or math.isnan(high):  # the acceleration is undefined for some samples
        low, high = interval("percentile")
    return Estimate(value, low, high)


def _expanded(samples: Sequence[Sample], confidence: float) -> tuple[float, float]:
    """The interval to second order in 1 / sqrt(n), without resampling.

    For a mean, bias correction and acceleration are both a sixth of its skewness (Efron 1987), and
    the quantiles of resampled means are those of Cornish and Fisher (Hall 1992, section 3.10).
    Cumulants of independent means add up.
    """
    value = float(sum(sample.mean() for sample in samples))
    moments = [(len(sample), sample - sample.mean()) for sample in samples]
    spread = math.sqrt(sum(float((d**2).mean()) / n for n, d in moments))
    skew = sum(float((d**3).mean()) / n**2 for n, d in moments) / spread**3 / 6

    def end(level: float) -> float:
        shifted = skew + NormalDist().inv_cdf(level)
        z = skew + shifted / (1 - skew * shifted)
        return value + spread * (z + skew * (z**2 - 1))

    return end((1 - confidence) / 2), end((1 + confidence) / 2)
