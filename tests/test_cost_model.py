"""The cost model: its closed form, the measurement it is made of, and its ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.acceptance import acceptances
from harness.bench.cost_model import CostModel, cost_models, joined
from harness.bench.costs import costs
from harness.report.render import render
from tests.records import made
from tests.test_costs import timed

RATES = st.floats(0.05, 0.95)
COSTS = st.floats(0.001, 0.6)


def even(alpha: float, c: float = 0.1, v: float = 1.0, k: int = 4, **rest: Any) -> CostModel:
    """Independent drafts, all accepted at the same rate, and blocks of one cost."""
    joint = tuple(alpha**i for i in range(1, k + 1))
    return CostModel("a", "chat", c, ((1.0, v), (99.0, v)), joint, alpha, (1.0,) * k, **rest)


@given(RATES, COSTS, st.floats(1, 3), st.integers(1, 6), st.integers(1, 12))
def test_one_rate_gives_the_closed_form(
    alpha: float, c: float, v: float, measured: int, k: int
) -> None:
    expected = (1 - alpha ** (k + 1)) / ((1 - alpha) * (v + c * k))
    assert even(alpha, c, v, measured).speedup(k) == pytest.approx(expected)


@given(RATES, COSTS, st.integers(1, 12))
def test_break_even_is_where_the_speedup_is_one(alpha: float, c: float, k: int) -> None:
    found = even(alpha, c).break_even(k)
    if found is None:
        assert k + 1 < 1 + c * k
    else:
        assert even(found or 1e-300, c).speedup(k) == pytest.approx(1)


def test_break_even_at_the_ends() -> None:
    assert even(0.5, c=0.0).break_even(3) == 0
    assert even(0.5, c=2.0).break_even(3) is None


def test_ceiling_is_that_of_free_drafts_without_end() -> None:
    assert even(0.75, c=0.3, v=1.5).ceiling == pytest.approx(4)
    assert even(0.75, prompt=0.5).ceiling == pytest.approx(1 / (0.5 + 0.5 / 4))
    assert even(1.0).ceiling == math.inf
    assert even(1.0, prompt=0.1).ceiling == pytest.approx(10)


@given(RATES, COSTS, st.floats(1, 3))
def test_nothing_predicted_is_above_the_ceiling(alpha: float, c: float, v: float) -> None:
    model = even(alpha, c, v)
    assert model.speedup(model.best()) <= model.ceiling * (1 + 1e-9)


def test_best_k_is_the_best_of_all() -> None:
    model = even(0.8, c=0.1)
    assert model.best() == max(range(1, 17), key=lambda k: (1 - 0.8 ** (k + 1)) / (1 + 0.1 * k))
    assert even(0.1, c=0.5).best() == 1


def test_the_line_of_blocks_goes_through_one_token_and_what_was_measured() -> None:
    model = replace(even(0.5), blocks=((3.0, 1.3),))
    assert [model.verify(k) for k in (0, 1, 3, 6)] == pytest.approx([1, 1.1, 1.3, 1.6])
    cheap = replace(even(0.5), blocks=((3.0, 0.9),))  # a longer block is not cheaper still
    assert [cheap.verify(k) for k in (1, 3, 30)] == pytest.approx([0.9] * 3)


def test_a_sweep_gives_the_measured_blocks_and_a_slope_beyond_them() -> None:
    short = replace(even(0.5, k=2), blocks=((2.0, 1.2),))
    model = joined([short, replace(even(0.5, k=4), blocks=((4.0, 1.6),))])
    assert model.places == 4
    assert [model.verify(k) for k in (2, 3, 4)] == pytest.approx([1.2, 1.4, 1.6])
    slope = (2 * 0.2 + 4 * 0.6) / (4 + 16)
    assert model.verify(6) == pytest.approx(1.6 + 2 * slope)


def test_beyond_the_measured_places_the_last_rate_goes_on() -> None:
    model = CostModel("a", "chat", 0.1, ((2.0, 1.0),), (0.6, 0.3), 0.5, (1.0, 0.8))
    assert model.length(4) == pytest.approx(1 + 0.6 + 0.3 + 0.15 + 0.075)
    assert model.drafted(4) == pytest.approx(1.8 + 1.6)


def test_drawn_rounds_predict_the_other_k() -> None:
    """Independent drafts (rate a) at K = 6; calls cost 1, blocks 1 + 0.05 k, drafts 0.1."""
    a, c, slope, k, rounds = 0.7, 0.1, 0.05, 6, 400
    generator = np.random.default_rng(1)
    rows = []
    for prompt in range(40):
        accepted = np.minimum(generator.geometric(1 - a, rounds) - 1, k)
        tokens = [0] * int(accepted.sum() + rounds)
        parts = {"prompt": 1e-9, "draft": c * k * rounds, "verify": (1 + slope * k) * rounds}
        rows.append(
            timed(
                prompt=f"p{prompt}",
                tokens=tokens,
                plain_tokens=tokens,
                drafted=[k] * rounds,
                accepted=accepted.tolist(),
                plain_parts={"prompt": 1e-9, "verify": float(len(tokens))},
                plain_seconds=float(len(tokens)),
                parts=parts,
                seconds=sum(parts.values()),
            )
        )
    (model,) = cost_models(rows, acceptances(rows, ["a"]), costs(rows, ["a"]))
    for other in (1, 2, 4, 6, 10):
        expected = (1 - a ** (other + 1)) / ((1 - a) * (1 + slope * other + c * other))
        assert model.speedup(other) == pytest.approx(expected, rel=0.02)


def test_at_the_measured_k_the_model_is_the_measurement() -> None:
    rows = [timed(), timed(prompt="p2")]  # 4 tokens of 2 rounds: 2 of 3 drafts, then none
    (model,) = cost_models(rows, acceptances(rows, ["a"]), costs(rows, ["a"]))
    assert model.length(3) == 2
    assert model.drafted(3) == 3
    assert model.speedup(3) == pytest.approx(2.0 / 1.5)
    assert model.ideal.speedup(3) == pytest.approx(1.8 / 1.4)
    assert model.overhead == pytest.approx(0.1 / 2 / 0.4)
    assert model.plain_overhead == pytest.approx(0.2 / 1.6)
    assert model.prompt == pytest.approx(0.1)


def test_overhead_lowers_what_is_predicted() -> None:
    assert even(0.7, overhead=0.2).speedup(3) < even(0.7).speedup(3)
    assert even(0.7, overhead=0.2).ideal.speedup(3) == pytest.approx(even(0.7).speedup(3))


def test_who_does_not_tell_has_no_model() -> None:
    rows = [timed(parts={}), timed(decoder="b")]
    names = ["a", "b"]
    found = cost_models(rows, acceptances(rows, names), costs(rows, names))
    assert [model.decoder for model in found] == ["b"]


def test_the_report_has_every_k_and_marks_what_is_beyond() -> None:
    tables = {table.title: table for table in render(made([timed(), timed(prompt="p2")])).tables}
    (line,) = tables["Predicted speedup by K"].rows
    rows = [timed(), timed(prompt="p2")]
    (model,) = cost_models(rows, acceptances(rows, ["a"]), costs(rows, ["a"]))
    stars = ["*" if k > model.places else "" for k in range(1, 9)]
    expected = [f"{model.speedup(k):.2f}x{s}" for k, s in enumerate(stars, 1)]
    assert line == ["chat", "a", *expected]
    (line,) = tables["Predicted and measured"].rows
    assert line[2:7] == ["3", "1.33x", "1.33x", "1.29x", "7%"]
