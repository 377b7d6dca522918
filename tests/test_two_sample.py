"""Two-sample tests: worked examples, enumeration, and the error level kept."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from two_samples import interval, mmd_square

from harness.stats.mmd import hamming_mmd
from harness.stats.paired_bets import PairedBets
from harness.stats.two_sample import (
    permutation,
)

NAN, INF = float("nan"), float("inf")
REPEATS = 2000


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
