"""Numbers that every statistic is given: checked in one place, named when they make no sense."""

from __future__ import annotations

import math


def check_level(value: float, name: str = "alpha") -> None:
    """Raise ValueError unless ``value`` is in (0, 1), where error levels and powers are."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}: it must be in (0, 1)")


def check_count(name: str, value: int) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least 1."""
    if not (value >= 1 and value % 1 == 0):
        raise ValueError(f"{name} is {value}: it must be a whole number of at least 1")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}: it must be positive and finite")
