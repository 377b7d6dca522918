"""Randomised PIT of tokens: worked examples, exact laws of the bins, calibration."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

from harness.checks.exact_law import distributions
from harness.stats import chi_square
from harness.stats.pit import (
    bin_probabilities,
    binned,
    pit,
    samples_needed,
    smallest,
    uniform,
    uniformity,
)

NAN = float("nan")
P = np.array([[0.2, 0.5, 0.3]])  # by falling probability: tokens 1, 2, 0


def draws(laws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One token of each row [n, V]."""
    sums = laws.cumsum(1)
    return (rng.random((len(laws), 1)) * sums[:, -1:] >= sums).sum(1)


def random_laws(rows: int, vocab: int, seed: int) -> np.ndarray:
    """Peaked laws, some with impossible tokens."""
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(vocab, 0.4), size=rows)
    laws[::3, :2] = 0
    return laws / laws.sum(1, keepdims=True)


# --- the transform ------------------------------------------------------------------------------


def test_by_hand() -> None:
    """F(x-) is 0 for token 1, 0.5 for token 2, 0.8 for token 0."""
    laws = np.repeat(P, 3, axis=0)
    found = pit(laws, np.array([1, 2, 0]), np.array([0.5, 0.0, 0.25]))
    assert found == pytest.approx([0.25, 0.5, 0.85])


def test_ties_stand_in_the_order_of_their_ids() -> None:
    fair = np.full((4, 4), 0.25)
    assert pit(fair, np.arange(4), np.zeros(4)) == pytest.approx([0, 0.25, 0.5, 0.75])


def test_a_token_that_cannot_be_stands_at_one() -> None:
    values = pit(np.array([[1.0, 0.0], [0.6, 0.4]]), np.array([1, 1]), np.array([0.3, 0.5]))
    assert values == pytest.approx([1.0, 0.8])
    assert binned(values, 4).tolist() == [0, 0, 0, 2]


def test_one_token_and_one_row() -> None:
    assert pit(np.ones((1, 1)), np.zeros(1, dtype=int), np.array([0.7])) == pytest.approx([0.7])


def test_a_large_vocabulary() -> None:
    """V > 100,000: the likeliest token is in the middle, all others alike."""
    vocab = 120_000
    law = np.full((2, vocab), 0.5 / (vocab - 1))
    law[:, 60_000] = 0.5
    found = pit(law, np.array([60_000, vocab - 1]), np.array([0.5, 0.0]))
    assert found == pytest.approx([0.25, 1 - 0.5 / (vocab - 1)])
    assert bin_probabilities(law, law) == pytest.approx(uniform())


@st.composite
def laws_of_a_row(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    vocab = draw(st.integers(1, 6))
    return tuple(np.array([draw(distributions(vocab))]) for _ in range(2))  # type: ignore[return-value]


@examples(100)
@given(laws_of_a_row(), st.integers(1, 12))
def test_the_law_of_the_bins_is_the_sum_over_tokens(
    laws: tuple[np.ndarray, np.ndarray], bins: int
) -> None:
    """A possible token spreads its mass evenly over its interval, an impossible one sits at 1."""
    p, alternative = laws
    expected = np.zeros(bins)
    for token, mass in enumerate(alternative[0]):
        ends = pit(np.repeat(p, 2, axis=0), np.full(2, token), np.array([0.0, 1 - 1e-12]))
        width = ends[1] - ends[0]
        if p[0, token] == 0:
            expected[-1] += mass
        else:
            for b in range(bins):
                overlap = min(ends[1], (b + 1) / bins) - max(ends[0], b / bins)
                expected[b] += mass * max(overlap, 0) / width
    assert bin_probabilities(p, alternative, bins) == pytest.approx(expected, abs=1e-6)
    assert bin_probabilities(p, p, bins) == pytest.approx(np.full(bins, 1 / bins), abs=1e-9)


def test_the_law_of_the_bins_is_what_is_drawn() -> None:
    rng = np.random.default_rng(3)
    p, q = random_laws(40, 8, 1), random_laws(40, 8, 2)
    law = bin_probabilities(p, q)
    rows = np.repeat(np.arange(40), 2_000)
    counts = binned(pit(p[rows], draws(q[rows], rng), rng.random(len(rows))))
    # Stratified over the contexts, so the statistic is if anything too small.
    assert chi_square.goodness_of_fit(counts, law).p_value > 1e-4
    assert chi_square.goodness_of_fit(counts, uniform()).p_value < 1e-9


# --- the test -----------------------------------------------------------------------------------


def test_uniformity_by_hand() -> None:
    """30, 30, 30 and 10 of 100 in four bins: X^2 = (3 * 25 + 225) / 25 = 12."""
    values = np.repeat([0.1, 0.3, 0.6, 1.0], [30, 30, 30, 10])
    found = uniformity(values, 4)
    assert (found.statistic, found.degrees, found.samples) == (pytest.approx(12), 3, 100)
    assert uniformity(values, 4, "log-likelihood").statistic == pytest.approx(
        2 * (90 * math.log(1.2) + 10 * math.log(0.4)) / (1 + (4 * 4 - 1) / (6 * 100 * 3))
    )
    assert uniformity(values, 1).p_value == 1


@functools.cache
def p_values_of_right_tokens() -> np.ndarray:
    """8,000 runs of 400 tokens, from contexts that never repeat."""
    rng = np.random.default_rng(7)
    laws, found = random_laws(4_000, 8, 5), []
    for _ in range(16):
        p = laws[rng.integers(len(laws), size=500 * 400)]
        values = pit(p, draws(p, rng), rng.random(len(p)))
        found += [uniformity(row).p_value for row in values.reshape(500, 400)]
    return np.array(found)


@pytest.mark.parametrize("alpha", [0.05, 1e-2, 1e-3])
def test_right_tokens_are_rejected_no_more_often_than_stated(alpha: float) -> None:
    """Exact binomial interval, confidence 0.99."""
    p_values = p_values_of_right_tokens()
    rejected = int((p_values <= alpha).sum())
    interval = stats.binomtest(rejected, len(p_values)).proportion_ci(0.99)
    assert interval.low <= alpha
    assert interval.high >= alpha / 2  # nor is it blunt


# --- the trio -----------------------------------------------------------------------------------


def test_what_is_needed_is_found_as_often_as_wanted() -> None:
    p, q = random_laws(200, 8, 1), random_laws(200, 8, 2)
    mixed = 0.9 * p + 0.1 * q
    alpha, wanted, runs = 1e-3, 0.9, 1_000
    tokens = samples_needed(p, mixed, alpha, wanted)
    rng = np.random.default_rng(11)
    rows = rng.integers(len(p), size=(runs, tokens))
    found = 0
    for row in rows:
        values = pit(p[row], draws(mixed[row], rng), rng.random(tokens))
        found += uniformity(values).p_value <= alpha
    interval = stats.binomtest(int(found), runs).proportion_ci(0.999)
    assert interval.low - 0.02 < wanted < interval.high + 0.03  # within 2%, and a limit
    assert smallest(p, q, tokens, alpha, wanted) == pytest.approx(0.1, rel=0.02)


def test_what_does_not_move_the_bins_is_not_seen() -> None:
    """Moved within one interval's bin: two halves of the vocabulary, two bins."""
    p, other = np.array([[0.25] * 4]), np.array([[0.5, 0.0, 0.5, 0.0]])
    assert smallest(p, other, 10_000, 1e-3, bins=2) == math.inf
    assert smallest(p, other, 10_000, 1e-3, bins=4) < 0.1


# --- what makes no sense ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "tokens", "u", "words"),
    [
        ([[0.5, NAN]], [0], [0.5], "nan"),
        ([[1.25, -0.25]], [0], [0.5], "-0.25"),
        ([[0.5, 0.4]], [0], [0.5], "row 0 of p sums to 0.9"),
        ([[0.5, 0.5]], [2], [0.5], "token 2"),
        ([[0.5, 0.5]], [-1], [0.5], "token -1"),
        ([[0.5, 0.5]], [0], [1.0], "u is 1.0"),
        ([[0.5, 0.5]], [0], [NAN], "u is nan"),
        ([[0.5, 0.5]], [0, 1], [0.5, 0.5], r"\(2,\) tokens"),
        ([0.5, 0.5], [0], [0.5], "shape"),
        (np.empty((0, 2)), [], [], "no rows"),
        (np.empty((2, 0)), [], [], "shape"),
    ],
)
def test_bad_laws_and_tokens_are_named(p: object, tokens: list, u: list, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pit(np.array(p), np.array(tokens, dtype=np.int64), np.array(u))


def test_bad_values_and_bins_are_named() -> None:
    for values, bins, words in [
        ([0.5, 1.5], 4, "1.5"),
        ([NAN], 4, "nan"),
        ([], 4, "no samples"),
        ([0.5], 0, "0 bins"),
    ]:
        with pytest.raises(ValueError, match=words):
            uniformity(np.array(values), bins)
    with pytest.raises(ValueError, match=r"\(1, 2\) for laws \(1, 3\)"):
        bin_probabilities(P, np.array([[0.5, 0.5]]))
    for call in (samples_needed, lambda p, a, alpha: smallest(p, a, 100, alpha)):
        with pytest.raises(ValueError, match="alpha is 1"):
            call(P, P[:, ::-1], 1)
