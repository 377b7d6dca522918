"""Two-sample tests: worked examples, enumeration, the error level kept, what the trios claim."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

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


def interval(found: int, repeats: int, confidence: float = 0.99) -> tuple[float, float]:
    bounds = stats.binomtest(found, repeats).proportion_ci(confidence)
    return bounds.low, bounds.high


def splits(pooled: np.ndarray, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """All ways to take n rows; the first is the observed one."""
    rows = range(len(pooled))
    return [
        (pooled[list(chosen)], pooled[[row for row in rows if row not in chosen]])
        for chosen in itertools.combinations(rows, n)
    ]


# --- permutation of scores ----------------------------------------------------------------------


def test_permutation_by_hand() -> None:
    """1, 2 against 3, 4: the means differ by 2, the deviation is sqrt(1.25), and of six splits
    only this one and its mirror image are as far apart. The other expert sees less here, but has
    a split of its own, 5, 5 against 7, 8, that is further apart."""
    one, other = np.array([[1, 5.0], [2, 7]]), np.array([[3, 5.0], [4, 8]])
    alone, found = permutation(one[:, :1], other[:, :1]), permutation(one, other)
    assert alone.statistic == found.statistic == pytest.approx(2 / math.sqrt(1.25))
    assert [alone.p_value, found.p_value] == pytest.approx([2 / 6, 4 / 6])
    assert (found.expert, found.sizes) == (0, (2, 2))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The statistic as it is defined."""
    deviations = np.concatenate([one, other]).std(0)
    means = np.abs(one.mean(0) - other.mean(0))
    return max(d / s if s > 1e-12 else 0.0 for d, s in zip(means, deviations, strict=True))


@pytest.mark.parametrize(("n", "m"), [(2, 3), (4, 4), (3, 6), (5, 2)])
@pytest.mark.parametrize("whole", [True, False], ids=["ties", "no ties"])
def test_permutation_equals_enumeration(n: int, m: int, whole: bool) -> None:
    rng = np.random.default_rng(n * m)
    pooled = rng.integers(0, 3, (n + m, 3)) / 10 if whole else rng.normal(size=(n + m, 3))
    values = np.array([difference(*split) for split in splits(pooled, n)])
    found = permutation(pooled[:n], pooled[n:])
    assert found.statistic == pytest.approx(values[0])
    assert found.p_value == pytest.approx((values >= values[0] - 1e-9).mean())


def test_resampled_p_values_count_the_observed_split() -> None:
    one, other = np.arange(20.0)[:, None], np.arange(20.0)[:, None] + 100
    assert permutation(one, other, resamples=99).p_value == 1 / 100
    tokens = np.zeros((20, 3), dtype=int), np.ones((20, 3), dtype=int)
    assert hamming_mmd(*tokens, resamples=99).p_value == 1 / 100


def test_resampling_is_near_enumeration_and_repeats_with_its_seed() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(7, 2)), rng.normal(0.8, 1, size=(8, 2))
    exact = permutation(one, other, resamples=6435).p_value
    drawn = [permutation(one, other, resamples=4000, seed=seed).p_value for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    low, high = interval(round(exact * 6435), 6435)
    assert low - 0.02 < drawn[0] < high + 0.02


def test_columns_without_spread_count_nothing() -> None:
    one, other = np.full((5, 2), 0.1), np.full((7, 2), 0.1)
    assert permutation(one, other).p_value == 1
    assert permutation(one, other).statistic == 0
    other[:, 1] = np.arange(7)
    assert permutation(one, other).expert == 1


def test_one_sequence_says_nothing() -> None:
    score = np.array([[1.0]])
    for arms in ((score, score + 1), (score, np.arange(9.0)[:, None]), (np.ones((4, 1)), score)):
        assert permutation(*arms).p_value == 1
    token = np.array([[7]])
    for tokens in (
        (token, token + 1),
        (token, np.arange(9)[:, None]),
        (np.ones((4, 1), int), token),
    ):
        assert hamming_mmd(*tokens).p_value == 1


@examples(100)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 4), st.integers(0, 99))
def test_scale_order_and_arm_do_not_matter(n: int, m: int, experts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(n, experts)), rng.normal(size=(m, experts))
    base = permutation(one, other, resamples=1)
    assert base.statistic == pytest.approx(difference(one, other))
    moved = permutation(7 - 3e5 * one[::-1], 7 - 3e5 * other, resamples=1)
    huge, tiny = (permutation(s * one, s * other, resamples=1) for s in (1e200, 1e-200))
    swapped = permutation(other, one, resamples=1)
    for again in (moved, huge, tiny, swapped):
        assert again.statistic == pytest.approx(base.statistic)
        assert again.expert == base.expert


# --- Hamming MMD --------------------------------------------------------------------------------


def mmd_square(one: np.ndarray, other: np.ndarray) -> float:
    """The kernel's three means, as they are defined."""

    def mean(left: np.ndarray, right: np.ndarray) -> float:
        return float((left[:, None] == right[None]).mean())

    return mean(one, one) + mean(other, other) - 2 * mean(one, other)


def test_mmd_by_hand() -> None:
    """Within one: (1 + 1 + 1/2 + 1/2) / 4; within the other 1; across (1/2 + 0) / 2."""
    found = hamming_mmd(np.array([[1, 2], [1, -1]]), np.array([[3, 2], [3, 2]]))
    assert found.statistic == pytest.approx(0.75 + 1 - 2 * 0.25)
    assert found.p_value == pytest.approx(2 / 6)


@pytest.mark.parametrize(("n", "m"), [(2, 3), (4, 4), (3, 6), (5, 2)])
def test_mmd_equals_enumeration(n: int, m: int) -> None:
    pooled = np.random.default_rng(n + m).integers(-1, 3, (n + m, 3))
    values = np.array([mmd_square(*split) for split in splits(pooled, n)])
    found = hamming_mmd(pooled[:n], pooled[n:])
    assert found.statistic == pytest.approx(values[0])
    assert found.p_value == pytest.approx((values >= values[0] - 1e-9).mean())


@examples(100)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 5), st.integers(0, 99))
def test_mmd_is_the_distance_of_the_marginals(n: int, m: int, length: int, seed: int) -> None:
    """Mean over positions of the squared Euclidean distance, and so blind to all else."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 4, (n, length)), rng.integers(0, 4, (m, length))
    laws = [(arm[..., None] == np.arange(4)).mean(0) for arm in (one, other)]
    expected = ((laws[0] - laws[1]) ** 2).sum(-1).mean()
    assert hamming_mmd(one, other, resamples=1).statistic == pytest.approx(expected, abs=1e-12)


def test_large_ids_and_long_outputs_are_exact() -> None:
    """Beyond float32: a sum of 9 (2^21 + 1), and ids of 2^30 that differ by one."""
    one = np.full((9, 2**21 + 1), 2**30, dtype=np.int32)
    other = np.full((2, 2**21 + 1), 2**30, dtype=np.int32)
    other[:, ::2] += 1  # one position more than half of them
    expected = 2 * (2**20 + 1) / (2**21 + 1)
    assert hamming_mmd(one, other, resamples=1).statistic == pytest.approx(expected, rel=1e-13)


# --- the level ----------------------------------------------------------------------------------


def test_the_level_tests_would_notice() -> None:
    assert interval(round(1.4 * 0.05 * REPEATS), REPEATS)[0] > 0.05


def test_permutation_keeps_its_level() -> None:
    """Heavy tails, correlated experts, unequal arms: 5 of 100 p-values are at most 0.05."""
    rng = np.random.default_rng(17)
    found = 0
    for seed in range(REPEATS):
        scores = rng.standard_t(2, size=(15, 3))
        scores[:, 1] += scores[:, 0]
        found += permutation(scores[:6], scores[6:], resamples=99, seed=seed).p_value <= 0.05
    low, high = interval(found, REPEATS)
    assert low <= 0.05 <= high, found / REPEATS


def test_mmd_keeps_its_level() -> None:
    rng = np.random.default_rng(19)
    found = 0
    for seed in range(REPEATS):
        tokens = rng.choice(4, p=[0.6, 0.2, 0.15, 0.05], size=(19, 6))
        found += hamming_mmd(tokens[:8], tokens[8:], resamples=99, seed=seed).p_value <= 0.05
    low, high = interval(found, REPEATS)
    assert low <= 0.05 <= high, found / REPEATS


def test_bets_keep_their_level_whenever_one_stops() -> None:
    """Looked at after each of 300 pairs, stopped at the first wealth of 1/alpha."""
    rng = np.random.default_rng(23)
    found = 0
    for _ in range(REPEATS):
        drawn = rng.standard_t(2, size=(2, 300, 4))
        drawn[..., 1] += drawn[..., 0]
        bets = PairedBets(4)
        bets.update(drawn[0] - drawn[1])
        found += bets.decision(0.05)
    assert found > 0
    assert interval(found, REPEATS)[0] <= 0.05, found / REPEATS


# --- bets ---------------------------------------------------------------------------------------


def test_bets_by_hand() -> None:
    """D = log 3 at scale 1 pays 2 * 3 / 4, then log 2 pays 2 * 2 / 3; signs pay 1, then 1 + 1/2."""
    bets = PairedBets(1, scales=[1.0])
    bets.update([[math.log(3)]])
    assert bets.log_wealth == pytest.approx(math.log((1.5 + 1) / 2))
    bets.update([[math.log(2)]])
    assert bets.log_wealth == pytest.approx(math.log((2 + 1.5) / 2))
    bets.update([[-math.log(2)]])  # 2 * 1 / 3, and 1 - 2/3
    assert bets.log_wealth == pytest.approx(math.log((4 / 3 + 0.5) / 2))
    assert (bets.pairs, bets.leader) == (3, 0)
    assert bets.peak == pytest.approx(math.log(1.75))
    assert bets.decision(0.6)  # 1.75 > 1 / 0.6 once is enough
    assert not bets.decision(0.5)


def test_over_all_signs_the_mean_wealth_is_one() -> None:
    """Symmetry turns all experts' signs at once: 2^7 outcomes, each as likely, at every time."""
    sizes = np.random.default_rng(2).normal(0, 2, size=(7, 3))
    sizes[3] = 0
    wealths = []
    for signs in itertools.product([-1, 1], repeat=7):
        bets = PairedBets(3, scales=(0.25, 1, 4, -1), weights=[1, 2, 5])
        bets.update(sizes * np.array(signs)[:, None])
        wealths.append(math.exp(bets.log_wealth))
    assert np.mean(wealths) == pytest.approx(1, rel=1e-12)


def test_no_difference_pays_nothing() -> None:
    bets = PairedBets(2)
    bets.update(np.zeros((50, 2)))
    assert [bets.log_wealth, bets.peak] == pytest.approx([0, 0], abs=1e-12)


def test_the_leader_is_the_expert_that_sees_it() -> None:
    rng = np.random.default_rng(29)
    differences = rng.normal(size=(400, 5))
    differences[:, 3] += 0.7
    bets = PairedBets(5)
    bets.update(differences)
    assert bets.decision(1e-6)
    assert bets.leader == 3


def test_signs_bet_both_ways() -> None:
    bets = PairedBets(1)
    bets.update(np.full((60, 1), -0.3))
    assert bets.decision(1e-6)


def test_huge_differences_stay_finite() -> None:
    bets = PairedBets(2)
    bets.update(np.array([[1e308, -1e308]] * 40))
    assert math.isfinite(bets.log_wealth)
    assert bets.log_wealth == pytest.approx(40 * math.log(2) - math.log(2), abs=1.5)
    json.loads(json.dumps(bets.state()), parse_constant=pytest.fail)


@examples(60)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 99))
def test_batches_and_a_resumed_state_change_nothing(
    sizes: list[int], experts: int, seed: int
) -> None:
    """Not even the last bit."""
    differences = np.random.default_rng(seed).normal(0.2, 3, size=(sum(sizes), experts))
    weights = list(range(1, experts + 1))
    whole = PairedBets(experts, weights=weights)
    whole.update(differences)
    parts = PairedBets(experts, weights=weights)
    for batch in np.split(differences, np.cumsum(sizes)[:-1]):
        parts = PairedBets.resume(json.loads(json.dumps(parts.state())))
        parts.update(batch)
    assert parts.state() == whole.state()
    assert parts.log_wealth == whole.log_wealth
    assert (parts.leader, parts.pairs) == (whole.leader, sum(sizes))


# --- what the trios claim -----------------------------------------------------------------------


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
