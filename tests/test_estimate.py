"""Means with their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.bench import estimate
from harness.bench.estimate import MANY, geometric_mean, mean


def test_geometric_mean_and_interval() -> None:
    found = geometric_mean([1.0, 2.0, 4.0, 2.0])
    assert found.value == pytest.approx(2.0)
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < 2.0 < found.high <= 4.0
    assert found == geometric_mean([1.0, 2.0, 4.0, 2.0])  # a fixed resampling seed


def test_interval_of_degenerate_samples() -> None:
    single = geometric_mean([1.5])
    assert (single.value, single.low, single.high) == (pytest.approx(1.5), None, None)
    same = geometric_mean([1.5, 1.5, 1.5])
    assert same.low == same.high == pytest.approx(1.5)
    two = geometric_mean([1.0, 4.0])
    assert two.low is not None
    assert not math.isnan(two.low)


def test_the_interval_of_many_is_that_of_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = np.random.default_rng(0).lognormal(0, 1, MANY)
    expanded = mean(sample.tolist())
    monkeypatch.setattr(estimate, "MANY", MANY + 1)
    drawn = mean(sample.tolist())
    error = sample.std() / math.sqrt(MANY)
    symmetric = sample.mean() - 1.96 * error, sample.mean() + 1.96 * error
    for end, normal in zip(("low", "high"), symmetric, strict=True):
        within = 0.1 * error  # four times the noise of so many resamples
        assert getattr(expanded, end) == pytest.approx(getattr(drawn, end), abs=within)
        assert normal != pytest.approx(getattr(drawn, end), abs=within)
