"""Helpers for tests of two-sample statistics."""

from __future__ import annotations

import numpy as np
from scipy import stats


def interval(found: int, repeats: int, confidence: float = 0.99) -> tuple[float, float]:
    bounds = stats.binomtest(found, repeats).proportion_ci(confidence)
    return bounds.low, bounds.high


def mmd_square(one: np.ndarray, other: np.ndarray) -> float:
    """The kernel's three means, as they are defined."""

    def mean(left: np.ndarray, right: np.ndarray) -> float:
        return float((left[:, None] == right[None]).mean())

    return mean(one, one) + mean(other, other) - 2 * mean(one, other)
