"""Two-sample tests: what their trios of level, power and size claim, and what makes no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from two_samples import interval, mmd_square

from harness.stats.mmd import hamming_mmd, mmd_samples_needed, mmd_smallest
from harness.stats.paired_bets import PairedBets, growth, pairs_needed, smallest_drift
from harness.stats.two_sample import (
    permutation,
    permutation_samples_needed,
    permutation_smallest,
    resamples_needed,
)

NAN, INF = float("nan"), float("inf")
REPEATS = 2000


@pytest.mark.parametrize(("n", "m"), [(12, 12), (60, 60), (20, 80)])
def test_permutation_finds_the_smallest_difference_at_the_stated_rate(n: int, m: int) -> None:
    """Interval of confidence 0.999, widened by 0.02 for t being near, and resamples being few."""
    alpha, power, experts, repeats = 0.02, 0.8, 3, 400
    shift = permutation_smallest(n, m, experts, alpha, power)
    rng = np.random.default_rng(n)
    found = 0
    for seed in range(repeats):
        one, other = rng.normal(size=(n, experts)), rng.normal(size=(m, experts))
        one[:, 1] += shift
        found += permutation(one, other, resamples=499, seed=seed).p_value <= alpha
    low, high = interval(found, repeats, 0.999)
    assert low - 0.02 < power < high + 0.02, found / repeats


@pytest.mark.parametrize("wanted", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("experts", [1, 20])
def test_samples_needed_by_permutation_are_the_fewest(wanted: float, experts: int) -> None:
    needed = permutation_samples_needed(wanted, experts, 1e-4, 0.99)
    assert permutation_smallest(needed, needed, experts, 1e-4, 0.99) <= wanted
    assert permutation_smallest(needed - 1, needed - 1, experts, 1e-4, 0.99) > wanted


def test_smallest_difference_by_hand() -> None:
    """Two-sided 0.05 and power 0.8: (1.960 + 0.842) sqrt(2 / n), the textbook's 16 / d^2."""
    assert permutation_smallest(10**6, 10**6, 1, 0.05, 0.8) == pytest.approx(
        2.802 * math.sqrt(2e-6), rel=1e-3
    )
    assert permutation_samples_needed(0.1, 1, 0.05, 0.8) == pytest.approx(1571, abs=2)
    assert permutation_smallest(4, 4, 1, 0.02, 0.8) == INF  # 70 splits: 2 / 70 is the least
    assert permutation_smallest(4, 4, 1, 0.03, 0.8) < INF
    assert permutation_smallest(1, 50, 1, 0.5, 0.8) == INF


@pytest.mark.parametrize(
    ("alpha", "needed"), [(0.05, 19), (1e-4, 9999), (0.5, 1), (0.9, 1), (0.03, 33), (1 / 49, 48)]
)
def test_resamples_an_alpha_needs(alpha: float, needed: int) -> None:
    assert resamples_needed(alpha) == needed
    assert 1 / (needed + 1) <= alpha
    assert needed == 1 or 1 / needed > alpha


def test_an_alpha_out_of_reach_is_refused() -> None:
    scores = np.arange(40.0).reshape(20, 2)
    assert permutation(scores, scores, alpha=1e-4).p_value == 1
    with pytest.raises(ValueError, match="99 resamples cannot reach it: it takes 9999"):
        permutation(scores, scores, resamples=99, alpha=1e-4)
    with pytest.raises(ValueError, match=r"3 sequences against 3 cannot reach it.*below 0.1"):
        permutation(scores[:3], scores[:3], alpha=0.05)
    assert permutation(scores[:3], scores[:3], alpha=0.1).p_value <= 1


def share_rejected(pairs: int, experts: int, drift: float, scale: float, alpha: float) -> float:
    """How often 400 runs of normal differences, one of which drifts, reject within ``pairs``."""
    rng = np.random.default_rng(31)
    found = 0
    for _ in range(400):
        differences = rng.normal(size=(pairs, experts))
        differences[:, -1] += drift
        bets = PairedBets(experts)
        bets.update(scale * differences)
        found += bets.decision(alpha)
    return found / 400


@pytest.mark.parametrize(("drift", "scale"), [(0.5, 1.0), (0.3, 0.6), (0.8, 1e-4)])
def test_pairs_needed_are_enough_and_not_many_more(drift: float, scale: float) -> None:
    """Within three deviations of 400 runs; the last by signs alone, as no scale suits."""
    alpha, power, experts = 1e-3, 0.9, 3
    sample = np.random.default_rng(37).normal(size=(20_000, experts))
    sample[:, -1] += drift
    needed = pairs_needed(scale * sample, alpha, power)
    assert share_rejected(needed, experts, drift, scale, alpha) > power - 0.045
    assert share_rejected(needed // 2, experts, drift, scale, alpha) < power


@pytest.mark.parametrize("pairs", [40, 300])
def test_the_smallest_drift_is_found_at_the_stated_rate(pairs: int) -> None:
    """By signs alone it is near exact (the average may stop earlier); a fitting scale adds."""
    alpha, power, experts = 1e-3, 0.9, 3
    drift = smallest_drift(pairs, experts, alpha, power)
    by_signs = share_rejected(pairs, experts, drift, 1e-6, alpha)
    assert power - 0.045 < by_signs < power + 0.06
    assert share_rejected(pairs, experts, drift, 1.0, alpha) > power - 0.045


def test_what_bets_see_by_hand() -> None:
    """D always log 3: log 1.5 a pair at scale 1, and no luck in it: log(2 / alpha) / log 1.5."""
    sample = np.full((1000, 1), math.log(3))
    assert growth(sample, [1.0])[0] == pytest.approx([math.log(1.5), math.log(2)], rel=1e-3)
    assert pairs_needed(sample, 1e-6, 0.9, [1.0]) <= math.ceil(math.log(2e6) / math.log(1.5))
    assert pairs_needed(np.zeros((9, 2)), 1e-6, 0.9, most=777) == 777
    assert smallest_drift(10, 1, 1e-4, 0.9) == INF  # 2^10 / KT's regret is not 4e4
    assert 0 < smallest_drift(100_000, 1, 1e-4, 0.9) < 0.03


@pytest.mark.parametrize(("n", "m"), [(100, 100), (60, 300)])
def test_mmd_finds_what_it_claims(n: int, m: int) -> None:
    """One of two tokens at each of three positions: MMD^2 = 2 x^2 for a shift by x."""
    alpha, power, repeats = 0.05, 0.9, 200
    shift = mmd_smallest(n, m, alpha, power) / math.sqrt(2)
    rng = np.random.default_rng(41)
    found = 0
    for seed in range(repeats):
        one, other = rng.random((n, 3)) < (1 - shift) / 2, rng.random((m, 3)) < (1 + shift) / 2
        arms = one.astype(int), other.astype(int)
        found += hamming_mmd(*arms, resamples=99, seed=seed).p_value <= alpha
    assert interval(found, repeats)[1] >= power, found / repeats


@pytest.mark.parametrize(("n", "m"), [(20, 20), (15, 60), (200, 200)])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_permutation_threshold_is_within_the_bound(n: int, m: int, alpha: float) -> None:
    """Even with the arms as far apart as can be, when permuting them spreads MMD most."""
    tokens = np.repeat([[0], [1]], [n, m], axis=0)
    rng = np.random.default_rng(43)
    orders = (rng.permutation(n + m) for _ in range(2000))
    values = [mmd_square(tokens[order[:n]], tokens[order[n:]]) for order in orders]
    bound = math.sqrt(1 / n + 1 / m) * (1 + math.sqrt(2 * math.log(1 / alpha)))
    assert math.sqrt(np.quantile(values, 1 - alpha)) < bound


def test_mmd_bound_by_hand() -> None:
    """alpha = power = 0.5: r (1 + 2 sqrt(2 log 2)), with r = sqrt(2 / n)."""
    factor = 1 + 2 * math.sqrt(2 * math.log(2))
    assert mmd_smallest(200, 200, 0.5, 0.5) == pytest.approx(factor / 10)
    assert mmd_smallest(5, 5, 0.5, 0.5) == INF
    needed = mmd_samples_needed(0.1, 1e-3, 0.9)
    assert mmd_smallest(needed, needed, 1e-3, 0.9) <= 0.1
    assert mmd_smallest(needed - 1, needed - 1, 1e-3, 0.9) > 0.1


# --- what makes no sense ------------------------------------------------------------------------

GOOD = np.zeros((3, 2))
IDS = np.zeros((3, 2), dtype=int)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: permutation([[NAN, 0]], GOOD), "score of one is nan"),
        (lambda: permutation(GOOD, [[0, -INF]]), "score of other is -inf"),
        (lambda: permutation(np.zeros((0, 2)), GOOD), r"one has shape \(0, 2\)"),
        (lambda: permutation(GOOD, np.zeros((3, 0))), r"other has shape \(3, 0\)"),
        (lambda: permutation(GOOD, np.zeros(3)), r"other has shape \(3,\)"),
        (lambda: permutation(GOOD, np.zeros((3, 5))), "2 experts, other has 5"),
        (lambda: permutation(GOOD, GOOD, resamples=0), "resamples is 0"),
        (lambda: permutation(GOOD[:1], GOOD, resamples=-3), "resamples is -3"),
        (lambda: hamming_mmd(np.zeros((0, 2), int), IDS), r"one has shape \(0, 2\)"),
        (lambda: hamming_mmd(IDS, np.zeros((2, 0), int)), r"other has shape \(2, 0\)"),
        (lambda: hamming_mmd(IDS, np.zeros((2, 7), int)), "2 positions, other has 7"),
        (lambda: hamming_mmd(IDS, GOOD), "other is of float64"),
        (lambda: hamming_mmd(IDS, IDS, resamples=0), "resamples is 0"),
        (lambda: hamming_mmd(IDS, IDS, resamples=1.5), "resamples is 1.5"),  # type: ignore[arg-type]
        (lambda: PairedBets(0), "experts is 0"),
        (lambda: PairedBets(2, scales=[]), "scales have shape"),
        (lambda: PairedBets(2, scales=[0.0]), "scale is 0.0"),
        (lambda: PairedBets(2, scales=[NAN]), "scale is nan"),
        (lambda: PairedBets(2, weights=[1.0]), r"shape \(1,\) for 2 experts"),
        (lambda: PairedBets(2, weights=[1.0, -0.5]), "weight is -0.5"),
        (lambda: PairedBets(2).update([[0, INF]]), "score of differences is inf"),
        (lambda: PairedBets(2).update(np.zeros((0, 2))), r"shape \(0, 2\)"),
        (lambda: PairedBets(2).update(np.zeros((4, 3))), "3 experts, not 2"),
        (lambda: PairedBets.resume({"scales": [1.0]}), "lacks pairs, peak, signs"),
        (lambda: PairedBets.resume(PairedBets(2).state() | {"sums": [[0.0]]}), r"sums \(1, 1\)"),
        (lambda: growth([[NAN]]), "nan"),
        (lambda: pairs_needed([[INF]], 0.1, 0.9), "inf"),
        (lambda: smallest_drift(0, 1, 0.1, 0.9), "pairs is 0"),
        (lambda: permutation_smallest(0, 3, 1, 0.1, 0.9), "n is 0"),
        (lambda: permutation_smallest(3, 3, 0, 0.1, 0.9), "experts is 0"),
        (lambda: permutation_samples_needed(0.0, 1, 0.1, 0.9), "difference is 0.0"),
        (lambda: permutation_samples_needed(NAN, 1, 0.1, 0.9), "difference is nan"),
        (lambda: mmd_smallest(3, 0, 0.1, 0.9), "m is 0"),
        (lambda: mmd_samples_needed(1.5, 0.1, 0.9), "discrepancy is 1.5"),
        (lambda: mmd_samples_needed(-1.0, 0.1, 0.9), "discrepancy is -1.0"),
    ],
)
def test_bad_input_is_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, NAN])
def test_a_bad_level_or_power_is_named(share: float) -> None:
    sample = np.ones((9, 1))
    for call in (
        lambda a, w: permutation_smallest(9, 9, 1, a, w),
        lambda a, w: permutation_samples_needed(0.1, 1, a, w),
        lambda a, w: smallest_drift(50, 1, a, w),
        lambda a, w: pairs_needed(sample, a, w),
        lambda a, w: mmd_smallest(99, 99, a, w),
        lambda a, w: mmd_samples_needed(0.1, a, w),
    ):
        with pytest.raises(ValueError, match=f"alpha is {share}"):
            call(share, 0.9)
        with pytest.raises(ValueError, match=f"power is {share}"):
            call(0.01, share)
    for decide in (
        PairedBets(1).decision,
        resamples_needed,
        lambda a: permutation(GOOD, GOOD, alpha=a),
    ):
        with pytest.raises(ValueError, match=f"alpha is {share}"):
            decide(share)
