"""The chi-square family: worked examples, scipy, simulation, and the error level it keeps."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from strategies import examples

from harness import oracle
from harness.checks.distribution import SETTINGS, TOKENS
from harness.checks.prompts import random_prompt
from harness.contract import Request
from harness.models import load_pair
from harness.stats.chi_square import (
    MIN_EXPECTED,
    effect,
    goodness_of_fit,
    holm,
    pool,
    power,
    samples_needed,
    smallest,
    tail_of_two,
)

STATISTICS = ("pearson", "log-likelihood")
FAIR = np.array([0.25, 0.25, 0.25, 0.25])
TILTED = np.array([0.28, 0.24, 0.24, 0.24])


# --- the statistics -----------------------------------------------------------------------------


def test_by_hand() -> None:
    """Expected 50 each: X^2 = (10^2 + 10^2) / 50 = 4, G = 2 (60 ln 1.2 + 40 ln 0.8) / Williams'."""
    counts = np.array([60, 40, 50, 50])
    pearson = goodness_of_fit(counts, FAIR)
    assert (pearson.statistic, pearson.degrees, pearson.samples) == (pytest.approx(4), 3, 200)
    nominal = 0.26146  # tables: chi-square, 3 degrees
    assert nominal - 1e-5 <= pearson.p_value <= 1.2 * nominal
    likelihood = goodness_of_fit(counts, FAIR, "log-likelihood")
    williams = 1 + (4 * 4 - 1) / (6 * 200 * 3)
    assert likelihood.statistic == pytest.approx(
        2 * (60 * np.log(1.2) + 40 * np.log(0.8)) / williams
    )


def test_a_count_of_zero_adds_nothing_to_g() -> None:
    counts = np.array([0, 100])
    found = goodness_of_fit(counts, np.array([0.3, 0.7]), "log-likelihood")
    williams = 1 + (1 / 0.3 + 1 / 0.7 - 1) / 600
    assert found.statistic == pytest.approx(200 * np.log(1 / 0.7) / williams)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_equals_scipy_where_nothing_is_pooled(statistic: str) -> None:
    law, counts = np.array([0.5, 0.3, 0.15, 0.05]), np.array([520, 270, 155, 55])
    found = goodness_of_fit(counts, law, statistic)
    expected = stats.power_divergence(counts, law * 1000, lambda_=statistic)
    williams = 1 + ((1 / law).sum() - 1) / (6 * 1000 * 3)
    factor = 1 if statistic == "pearson" else williams
    assert found.statistic == pytest.approx(expected.statistic / factor)
    nominal = stats.chi2.sf(found.statistic, 3)
    assert found.p_value == max(nominal, tail_of_two(nominal, 50, 1000, statistic))


def test_pooled_cells_are_judged_together() -> None:
    small = 0.75 * MIN_EXPECTED / 1000  # expected, in thousands: two make a group, one joins it
    law = np.array([0.5, 0.5 - 3 * small, small, small, small, 0.0])
    moved = round(3000 * small)
    found = goodness_of_fit(np.array([500, 500 - moved, moved, 0, 0, 0]), law)
    assert (found.statistic, found.degrees) == (pytest.approx(0), 2)


def test_one_group_says_nothing() -> None:
    assert goodness_of_fit(np.array([7]), np.array([1.0])).p_value == 1
    assert goodness_of_fit(np.array([3, 0, 0, 0]), FAIR).p_value == 1  # too few to judge
    assert power(FAIR, TILTED, 3, 0.01) == 0


# --- pooling ------------------------------------------------------------------------------------

weights = st.lists(st.sampled_from([0, 0, 1, 3]) | st.integers(0, 10**6), min_size=1, max_size=40)


@examples(200)
@given(weights.filter(any), st.integers(1, 100_000))
def test_groups_are_large_enough_where_possible(cells: list[int], samples: int) -> None:
    law = np.array(cells) / sum(cells)
    groups = pool(law, samples)
    expected = np.bincount(groups, weights=law * samples)
    assert sorted(set(groups)) == list(range(len(expected)))  # 0-based, none is empty
    if samples < MIN_EXPECTED:
        assert len(expected) == 1
    else:
        assert expected.min() >= MIN_EXPECTED * (1 - 1e-9)
    # A cell that is large enough stays alone, but for the last, which takes what is left over.
    alone = (law * samples >= MIN_EXPECTED) & (groups < groups.max())
    assert all((groups == group).sum() == 1 for group in groups[alone])


def test_impossible_cells_have_no_group_of_their_own() -> None:
    law = np.array([0.0, 0.5, 0.0, 0.5])
    assert len(set(pool(law, 1000))) == 2
    assert goodness_of_fit(np.array([0, 500, 0, 500]), law).statistic == pytest.approx(0)


# --- power --------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [500, 1500, 4000])
def test_power_is_how_often_the_alternative_is_found(samples: int) -> None:
    """2000 samples of the alternative; the interval (confidence 0.999) is widened by 0.02 for the
    noncentral chi-square being a limit."""
    alpha, repeats = 0.01, 2000
    counts = np.random.default_rng(5).multinomial(samples, TILTED, size=repeats)
    found = sum(goodness_of_fit(c, FAIR).p_value <= alpha for c in counts)
    interval = stats.binomtest(found, repeats).proportion_ci(0.999)
    claimed = power(FAIR, TILTED, samples, alpha)
    assert interval.low - 0.02 < claimed < interval.high + 0.02


def test_power_against_no_effect_is_the_error_level() -> None:
    assert 0.008 < power(FAIR, FAIR, 1000, 0.01) < 0.01001


def test_effect_by_hand() -> None:
    """(0.03^2 + 3 * 0.01^2) / 0.25."""
    assert effect(FAIR, TILTED, 1000) == (pytest.approx(0.0048), 3)


@pytest.mark.parametrize("wanted", [0.5, 0.99])
def test_samples_needed_is_the_smallest_within_its_tolerance(wanted: float) -> None:
    needed = samples_needed(FAIR, TILTED, 1e-4, wanted)
    assert power(FAIR, TILTED, needed, 1e-4) >= wanted
    assert power(FAIR, TILTED, int(needed / 1.03), 1e-4) < wanted


def test_samples_needed_grows_with_what_is_asked_of_them() -> None:
    near = (FAIR + TILTED) / 2
    base = samples_needed(FAIR, TILTED, 1e-3, 0.9)
    assert base < samples_needed(FAIR, TILTED, 1e-4, 0.9)
    assert base < samples_needed(FAIR, TILTED, 1e-3, 0.99)
    assert 3 * base < samples_needed(FAIR, near, 1e-3, 0.9)  # half the effect: four times
    assert samples_needed(FAIR, FAIR, 1e-3, 0.9, most=5000) == 5000


def test_what_is_smallest_is_found_as_often_as_wanted() -> None:
    share = smallest(FAIR, TILTED, 20_000, 1e-4, 0.9)
    assert power(FAIR, (1 - share) * FAIR + share * TILTED, 20_000, 1e-4) == pytest.approx(0.9)
    needed = samples_needed(FAIR, TILTED, 1e-4, 0.9)
    assert smallest(FAIR, TILTED, needed, 1e-4, 0.9) == pytest.approx(1, rel=0.02)
    assert smallest(FAIR, TILTED, 4 * needed, 1e-4, 0.9) == pytest.approx(0.5, rel=0.02)


def test_nothing_is_smallest_where_nothing_is_seen() -> None:
    assert smallest(FAIR, TILTED, 100, 1e-4) == math.inf
    assert smallest(FAIR, FAIR, 10_000, 1e-4) == math.inf
    assert smallest(np.ones(1), np.ones(1), 10_000, 1e-4) == math.inf  # one token


def test_a_large_vocabulary() -> None:
    """V > 100,000, most of it pooled; a single cell holds the effect."""
    law = np.full(150_000, 0.5 / 149_999)
    law[70_000] = 0.5
    groups = pool(law, 50_000)
    assert np.bincount(groups, weights=law * 50_000).min() >= MIN_EXPECTED * (1 - 1e-9)
    other = law[::-1].copy()
    assert samples_needed(law, other, 1e-4) < 1_000
    counts = np.random.default_rng(1).multinomial(50_000, law)
    assert goodness_of_fit(counts, law).p_value > 1e-4
    assert goodness_of_fit(counts[::-1], law).p_value < 1e-9


# --- the family ---------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    """At 0.05 over four: 0.005 <= 0.05/4 and 0.01 <= 0.05/3 go, 0.03 > 0.05/2 stops, 0.04 too."""
    p_values = {"c": 0.03, "a": 0.005, "d": 0.04, "b": 0.01}
    assert holm(p_values, 0.05) == ["a", "b"]
    assert holm({"a": 0.025, "b": 0.05}, 0.05) == ["a", "b"]  # the bounds belong to it
    assert holm({"a": 0.0251, "b": 0.0251}, 0.05) == []
    assert holm({}, 0.05) == []


@functools.cache
def micro_laws() -> dict[str, np.ndarray]:
    """The joint laws that ``distribution.family`` compares with on pair ``micro``."""
    pair = load_pair("micro")
    prompt = random_prompt(pair, 3, 20261129)
    return {
        name: oracle.joint(
            oracle.joint_law(
                pair.target,
                Request(prompt=prompt, max_new_tokens=TOKENS, sampling=sampling),
                TOKENS,
                pair.vocab_size,
            )
        ).numpy()
        for name, sampling in SETTINGS.items()
    }


def rejections(law: np.ndarray, samples: int, alpha: float, repeats: int) -> int:
    """How many of ``repeats`` exact samples the pair of tests rejects, all computed at once."""
    law = law / law.sum()
    groups = pool(law, samples)
    p = np.bincount(groups, weights=law)
    expected, degrees = p * samples, len(p) - 1
    counts = np.random.default_rng(11).multinomial(samples, p / p.sum(), size=repeats)
    pearson = ((counts - expected) ** 2 / expected).sum(1)
    williams = 1 + ((1 / p).sum() - 1) / (6 * samples * degrees)
    likelihood = 2 * special.xlogy(counts, counts / expected).sum(1) / williams
    rejected = np.zeros(repeats, dtype=bool)
    for name, found in zip(STATISTICS, (pearson, likelihood), strict=True):
        rejected |= stats.chi2.sf(found, degrees) <= nominal(
            alpha / 2, expected.min(), samples, name
        )
    # As goodness_of_fit and holm have it: checked on the first few, and on some that are rejected.
    for row in {*range(10), *np.flatnonzero(rejected)[:10].tolist()}:
        values = {s: goodness_of_fit(counts[row], p, s).p_value for s in STATISTICS}
        assert bool(holm(values, alpha)) == rejected[row]
    return int(rejected.sum())


def nominal(alpha: float, expected: float, samples: int, statistic: str) -> float:
    """The largest nominal p-value that is called ``alpha`` at the most."""
    low, high = 0.0, alpha
    for _ in range(60):
        middle = (low + high) / 2
        if max(middle, tail_of_two(middle, expected, samples, statistic)) <= alpha:
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize(("alpha", "repeats"), [(1e-2, 10_000), (1e-3, 60_000)])
def test_a_right_decoder_is_rejected_no_more_often_than_stated(alpha: float, repeats: int) -> None:
    """The exact binomial interval (confidence 0.99) would show 1.5 times the level."""
    too_often = stats.binomtest(round(1.5 * alpha * repeats), repeats)
    assert too_often.proportion_ci(0.99).low > alpha
    for setting, law in micro_laws().items():
        for samples in (700, 8_000):
            found = rejections(law, samples, alpha, repeats)
            interval = stats.binomtest(found, repeats).proportion_ci(0.99)
            assert interval.low <= alpha, (setting, samples, found / repeats)


LEVELS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("expected", [20, 57.5, 400])
def test_the_level_of_two_groups_is_exact(statistic: str, expected: float) -> None:
    samples = 8_000
    law = np.array([expected, samples - expected]) / samples
    at = np.arange(200) if expected < 100 else np.arange(250, 600)
    values = np.array(
        [goodness_of_fit(np.array([c, samples - c]), law, statistic).p_value for c in at]
    )
    chances = stats.binom.pmf(at, samples, law[0])
    for level in LEVELS:
        assert chances[values <= level].sum() <= level * (1 + 1e-6)
        assert chances[values <= level * 30].sum() > level  # not by never rejecting


@pytest.mark.parametrize(("statistic", "most"), [("pearson", 1.35), ("log-likelihood", 1.14)])
@pytest.mark.parametrize("small", [2, 3, 10, 100, 1000])
def test_the_level_holds_with_any_number_of_small_groups(
    statistic: str, most: float, small: int
) -> None:
    """Exact, up to the width of a lattice: ``small`` groups that expect 20, and a large one.

    Beside the large one their counts are independent and nearly Poisson, so the law of the sum of
    what they add to the statistic is a power of one transform.
    """
    expected, step, size = MIN_EXPECTED, 0.005, 1 << 20
    counts = np.arange(200)
    if statistic == "pearson":
        added = (counts - expected) ** 2 / expected
    else:
        g = 2 * (special.xlogy(counts, counts / expected) - (counts - expected))
        added = g / (1 + 1 / (6 * expected))
    cells = np.zeros(size)
    np.add.at(cells, np.round(added / step).astype(int), stats.poisson.pmf(counts, expected))
    total = np.fft.irfft(np.fft.rfft(cells) ** small, size)
    samples = 1_000_000
    for level in LEVELS:
        critical = stats.chi2.isf(nominal(level, expected, samples, statistic), small)
        assert total[int(critical / step) :].sum() <= most * level


# --- what makes no sense ------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("counts", "law", "words"),
    [
        ([1, 1], [0.5, NAN], "nan"),
        ([1, 1], [0.5, float("inf")], "inf"),
        ([1, 1], [1.25, -0.25], "-0.25"),
        ([1, 1], [0.5, 0.4], "0.9"),
        ([], [], "no cells"),
        ([0, 0], [0.5, 0.5], "no samples"),
        ([-3, 5], [0.5, 0.5], "-3"),
        ([1, 2, 3], [0.5, 0.5], "3 counts for 2 cells"),
    ],
)
def test_a_bad_law_or_count_is_named(counts: list[int], law: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        goodness_of_fit(np.array(counts, dtype=np.int64), np.array(law))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5, NAN])
def test_a_bad_level_is_named(alpha: float) -> None:
    for call in (
        lambda: holm({"a": 0.5}, alpha),
        lambda: power(FAIR, TILTED, 100, alpha),
        lambda: samples_needed(FAIR, TILTED, alpha),
        lambda: samples_needed(FAIR, TILTED, 0.01, alpha),
        lambda: smallest(FAIR, TILTED, 100, alpha),
        lambda: smallest(FAIR, TILTED, 100, 0.01, alpha),
    ):
        with pytest.raises(ValueError, match=str(alpha)):
            call()


def test_an_alternative_that_does_not_fit_is_named() -> None:
    for call in (
        lambda: power(FAIR, np.ones(1), 100, 0.01),
        lambda: smallest(FAIR, np.ones(1), 100, 0.01),
    ):
        with pytest.raises(ValueError, match="an alternative of 1 cells for 4 cells"):
            call()
    with pytest.raises(ValueError, match="0 samples"):
        smallest(FAIR, TILTED, 0, 0.01)
    with pytest.raises(ValueError, match=r"sum to 0\.9"):
        smallest(FAIR, np.array([0.5, 0.4, 0, 0]), 100, 0.01)


@pytest.mark.parametrize("p_value", [NAN, -0.1, 1.5])
def test_a_bad_p_value_is_named(p_value: float) -> None:
    """A NaN is larger than nothing: it would be rejected."""
    with pytest.raises(ValueError, match=f"of a is {p_value}"):
        holm({"a": p_value}, 0.05)
