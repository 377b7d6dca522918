"""Means over prompts, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 9999
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
    what a new measurement would draw anew.
    """
    sample = np.asarray(values, dtype=np.float64)
    value = float(sample.mean())
    if len(sample) < 2:
        return Estimate(value)
    if np.ptp(sample) == 0:
        return Estimate(value, value, value)
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
