"""Figures of speedup over a setting: what the tables say, at its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from harness.bench.estimate import Estimate
from harness.report import svg
from harness.report.charts import HOLLOW
from harness.report.curves import Point, predicted, swept
from harness.report.document import Chart
from tests.test_advice import GOOD, WRONG, at
from tests.test_charts import labels, points
from tests.test_cost_model import even


def plotted(chart: Chart) -> Figure:
    figure = Figure()
    chart.draw.args[0](figure)  # type: ignore[attr-defined]
    return figure


def at_value(value: str, speedup: float, task: str = "chat", objection: str = "") -> Point:
    return Point(task, "a", value, Estimate(speedup, speedup - 0.1, speedup + 0.1), objection)


def test_the_prediction_goes_on_dashed_beyond_what_was_measured() -> None:
    model = even(0.7, k=3)
    figure = plotted(predicted([model], 3, {("a", "chat"): at(1.9, 1.8, 2.0)}, ["a"]))
    solid, dashed = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert list(solid.get_xdata()) == [1, 2, 3]
    assert list(solid.get_ydata()) == pytest.approx([model.speedup(k) for k in (1, 2, 3)])
    assert list(dashed.get_xdata()) == [3, 4, 5, 6, 7, 8]
    assert dashed.get_linestyle() == "--"
    assert points(figure) == [(3, 1.9)]
    assert labels(figure) == ["a"]


def test_all_tasks_together_are_drawn_where_there_are_several() -> None:
    models = [even(0.7), replace(even(0.3), task="all")]
    summaries: dict[tuple[str, str], Any] = {("a", "chat"): GOOD, ("a", "all"): WRONG}
    chart = predicted(models, 3, summaries, ["a"])
    lines = [line for line in plotted(chart).axes[0].lines if len(line.get_xdata()) > 2]
    assert lines[0].get_ydata()[0] == pytest.approx(even(0.3).speedup(1))
    assert lines[0].get_color() == svg.QUIET
    assert HOLLOW in chart.caption


def test_numbers_stand_at_their_place_and_names_side_by_side() -> None:
    numbers = swept("draft_tokens", ["1", "8"], [at_value("1", 1.2), at_value("8", 1.5)], ["a"])
    assert points(plotted(numbers)) == [(1, 1.2), (8, 1.5)]
    words = ["right", "mismatched"]
    figure = plotted(swept("pair", words, [at_value(w, 1.2) for w in words], ["a"]))
    assert points(figure) == [(0, 1.2), (1, 1.2)]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == words


def test_what_is_no_result_is_hollow() -> None:
    found = [at_value("1", 1.2), at_value("2", 3.0, objection="not lossless")]
    chart = swept("draft_tokens", ["1", "2"], found, ["a"])
    marks = [line for line in plotted(chart).axes[0].lines if len(line.get_xdata()) == 1]
    assert [mark.get_markerfacecolor() == svg.GROUND for mark in marks] == [False, True]
    assert HOLLOW in chart.caption


def test_every_task_has_a_panel_and_the_model_of_the_largest_k_is_dashed() -> None:
    found = [at_value(k, 1.2, task) for task in ("chat", "code") for k in ("1", "4")]
    figure = plotted(swept("draft_tokens", ["1", "4"], found, ["a"], [even(0.6)]))
    assert [axes.get_title() for axes in figure.axes] == ["chat", "code"]
    dashed = [[line.get_linestyle() for line in axes.lines].count("--") for axes in figure.axes]
    assert dashed == [1, 0]
    assert labels(figure) == ["a"]


def test_names_of_any_kind_can_be_drawn() -> None:
    chart = swept("pair", ["a$b$", "<b>"], [at_value("a$b$", 1.2), at_value("<b>", 1.3)], ["a"])
    assert "&lt;b&gt;" in chart.draw("c")
