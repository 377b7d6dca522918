"""Streams of uniforms, the inverse of a CDF, and the enumeration of all outcomes."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

from reference_impl.randomness import (
    Randomness,
    Seeded,
    Streams,
    enumerate_outcomes,
    inverse_cdf,
)

SEEDS = st.integers(-(2**70), 2**70)
ALPHA = 1e-6  # of each fixed-seed test below: with these seeds they pass, on every machine
COUNT = 200_000


@examples(100)
@given(st.lists(SEEDS, min_size=1, max_size=5), st.data())
def test_a_draw_depends_on_seed_and_index_alone(seeds: list[int], data: st.DataObject) -> None:
    """Whatever the neighbours use, and whoever leaves the batch in between."""
    alone = [Streams([seed]).uniform(60)[0] for seed in seeds]
    streams, rows, drawn = Streams(list(seeds)), list(range(len(seeds))), [0] * len(seeds)
    for _ in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(0, 6))
        used = [data.draw(st.integers(0, count)) for _ in rows]
        got = streams.uniform(count, used=torch.tensor(used))
        for at, row in enumerate(rows):
            assert torch.equal(got[at], alone[row][drawn[row] : drawn[row] + count])
            drawn[row] += used[at]
        kept = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, unique=True))
        streams.select(torch.tensor(kept))
        rows = [rows[at] for at in kept]


def test_without_used_all_are_used() -> None:
    streams, whole = Streams([5, 6]), Streams([5, 6]).uniform(7)
    assert torch.equal(torch.cat([streams.uniform(3), streams.uniform(4)], 1), whole)


def test_seeded_is_one_row_of_streams() -> None:
    coins = Streams([9]).uniform(50)[0]
    seeded = Seeded(9)
    weights = torch.tensor([0.1, 0.0, 0.4, 0.5])
    for u in coins[:25]:
        assert seeded.choice(weights) == int(inverse_cdf(weights, u))
    for u in coins[25:]:
        assert seeded.flip(0.3) == (float(u) < 0.3)


def test_seeds_give_different_streams_that_are_no_shifts_of_each_other() -> None:
    golden = 0x9E3779B97F4A7C15  # the step of the counter: in a naive key, a shift by one draw
    seeds = [*range(200), *(1 << n for n in range(8, 64)), -1, *(n * golden for n in range(1, 40))]
    coins = Streams(list(seeds)).uniform(50)
    assert coins.unique().numel() == coins.numel()


def test_no_seed_is_a_new_seed() -> None:
    assert Streams([None, None]).uniform(1).unique().numel() == 2


def test_uniforms_are_uniform_and_independent() -> None:
    """Kolmogorov-Smirnov within a row and across rows, serial and lagged correlation, bits."""
    within = Streams([1]).uniform(COUNT)[0].numpy()
    across = Streams(list(range(COUNT))).uniform(1)[:, 0].numpy()
    for sample in (within, across):
        assert sample.min() >= 0
        assert sample.max() < 1
        assert stats.kstest(sample, "uniform").pvalue > ALPHA
        for lag in (1, 2, 5, 16):
            assert stats.pearsonr(sample[:-lag], sample[lag:]).pvalue > ALPHA
        bits = (sample * 2.0**52).astype(np.int64)
        for bit in range(52):
            ones = int((bits >> bit & 1).sum())
            assert stats.binomtest(ones, COUNT).pvalue > ALPHA


def test_uniforms_leave_room_below_one() -> None:
    """``inverse_cdf`` relies on multiples of 2**-52."""
    scaled = Streams([3]).uniform(10_000) * 2.0**52
    assert torch.equal(scaled, scaled.round())


LARGEST = 1 - 2.0**-52
UNIFORMS = st.sampled_from([0.0, 2.0**-52, 0.5, LARGEST]) | st.integers(0, 2**52 - 1).map(
    lambda n: n / 2**52
)
WEIGHTS = st.just(0.0) | st.floats(2.0**-100, 1, width=32) | st.sampled_from([1.0, 0.25])


@examples(300)
@given(
    st.lists(WEIGHTS, min_size=1, max_size=12).filter(any),
    UNIFORMS,
    st.sampled_from([torch.float32, torch.float64]),
)
def test_inverse_cdf_gives_the_token_whose_share_holds_u(
    weights: list[float], u: float, dtype: torch.dtype
) -> None:
    chosen = int(
        inverse_cdf(torch.tensor(weights, dtype=dtype), torch.tensor(u, dtype=torch.float64))
    )
    assert weights[chosen] > 0
    shares = np.cumsum(np.array(weights, dtype=np.float64))
    assert chosen == 0 or shares[chosen - 1] <= u * shares[-1]
    assert u * shares[-1] < shares[chosen]


def test_inverse_cdf_takes_rows() -> None:
    weights = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])
    u = torch.tensor([[0.0, LARGEST], [0.49, 0.5]], dtype=torch.float64)
    assert inverse_cdf(weights, u).tolist() == [[1, 0], [0, 1]]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """A list of questions; the answer to one decides whether the next is asked."""
    weights = st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any)
    flips = st.integers(0, 4).map(lambda n: ("flip", [n]))
    return draw(st.lists(flips | weights.map(lambda w: ("choice", w)), max_size=4))


def run(program: list[tuple[str, list[int]]], randomness: Randomness) -> tuple[int, ...]:
    answers: list[int] = []
    for kind, numbers in program:
        if answers and answers[-1] == 0:
            answers.append(-1)  # not asked
        elif kind == "flip":
            answers.append(int(randomness.flip(numbers[0] / 4)))
        else:
            answers.append(randomness.choice(torch.tensor(numbers)))
    return tuple(answers)


def exact_law(
    program: list[tuple[str, list[int]]], before: tuple[int, ...] = ()
) -> dict[tuple[int, ...], Fraction]:
    if len(before) == len(program):
        return {before: Fraction(1)}
    kind, numbers = program[len(before)]
    if before and before[-1] == 0:
        return exact_law(program, (*before, -1))
    weights = [4 - numbers[0], numbers[0]] if kind == "flip" else numbers
    law = {}
    for answer, weight in enumerate(weights):
        if weight:
            rest = exact_law(program, (*before, answer))
            law |= {key: value * Fraction(weight, sum(weights)) for key, value in rest.items()}
    return law


@examples(150)
@given(programs())
def test_enumeration_visits_every_outcome_once_with_its_probability(
    program: list[tuple[str, list[int]]],
) -> None:
    found = list(enumerate_outcomes(lambda randomness: run(program, randomness)))
    expected = exact_law(program)
    assert len(found) == len(expected)
    assert dict(found) == pytest.approx({key: float(v) for key, v in expected.items()}, abs=1e-12)
    assert sum(weight for _, weight in found) == pytest.approx(1, abs=1e-12)


def test_a_probability_above_one_is_one_and_below_zero_is_zero() -> None:
    def both(randomness: Randomness) -> tuple[bool, bool]:
        return randomness.flip(1.5), randomness.flip(-0.5)

    assert list(enumerate_outcomes(both)) == [((True, False), 1.0)]
    assert both(Seeded(0)) == (True, False)


def test_seeded_frequencies_are_those_of_the_enumeration() -> None:
    """Chi-square over a small program, fixed seeds 0 .. N-1."""
    program = [("choice", [1, 2, 1]), ("flip", [3]), ("choice", [0, 1, 3])]
    law = exact_law(program)
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    total = 3000
    for seed in range(total):
        counts[run(program, Seeded(seed))] += 1
    assert set(counts) == set(law)
    expected = [float(law[key]) * total for key in law]
    assert stats.chisquare([counts[key] for key in law], expected).pvalue > ALPHA
