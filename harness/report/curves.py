"""Figures of what changes with a setting: predicted speedup over K, and what a sweep measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from harness.bench.cost_model import CostModel
from harness.bench.estimate import Estimate
from harness.bench.summary import Summary
from harness.report.charts import HOLLOW, LINE, MARKERS, chart
from harness.report.document import Chart
from harness.report.svg import GROUND, INK, QUIET, SERIES, shown

PANEL = 2.1  # inches that a task takes
SWEPT = "Geometric mean over prompts with its 95% interval; above the line speculation is faster."
FROM_LONGEST = "Dashed: predicted from the measurement at the largest K alone."
PREDICTED = (
    "Lines: what acceptance by position and the measured costs predict; dashed where the last "
    "acceptance rate is taken to go on. Points: measured."
)


class Point(NamedTuple):
    """A speedup at one value of a sweep; ``objection`` says why it is no result, if it is none."""

    task: str
    decoder: str
    value: str
    estimate: Estimate
    objection: str


def swept(
    axis: str,
    values: Sequence[str],
    points: Sequence[Point],
    decoders: Sequence[str],
    models: Sequence[CostModel] = (),
) -> Chart:
    """Measured speedup over the values of a sweep, a panel a task.

    Parameters
    ----------
    values : sequence of str
        In the order of the axis.
    models : sequence of CostModel
        In a sweep over K: those of the largest one.
    """
    tasks = list(dict.fromkeys(point.task for point in points))
    draw = partial(
        _draw_swept, axis=axis, values=values, points=points, decoders=decoders, models=models
    )
    words = [SWEPT, *([FROM_LONGEST] if models else [])]
    words += [HOLLOW] if any(point.objection for point in points) else []
    height = 0.8 + PANEL * len(tasks) + LINE * len(decoders)
    return chart(f"Speedup over {axis}", words, draw, height)


def predicted(
    models: Sequence[CostModel],
    k: int,
    summaries: Mapping[tuple[str, str], Summary],
    decoders: Sequence[str],
) -> Chart:
    """Predicted speedup over K, all tasks together, and the measured one."""
    last = models[-1].task  # all tasks, where there are several
    shown_models = [model for model in models if model.task == last]
    objections = any(summaries[m.decoder, m.task].losslessness.objection for m in shown_models)
    draw = partial(
        _draw_predicted, models=shown_models, k=k, summaries=summaries, decoders=decoders
    )
    words = [PREDICTED, *([HOLLOW] if objections else [])]
    return chart("Predicted speedup by K", words, draw, 3.2 + LINE * len(shown_models))


def colours(decoders: Sequence[str]) -> dict[str, str]:
    """The colour of each decoder, as in the other figures of a record."""
    return dict(zip(decoders, cycle(SERIES), strict=False))


def _draw_predicted(
    figure: Any,
    models: Sequence[CostModel],
    k: int,
    summaries: Mapping[tuple[str, str], Summary],
    decoders: Sequence[str],
) -> None:
    axes = figure.subplots()
    axes.axhline(1, color=INK, linewidth=1)
    of, marks = colours(decoders), dict(zip(decoders, cycle(MARKERS), strict=False))
    farthest = max(8, 2 * k)
    for model in models:
        summary = summaries[model.decoder, model.task]
        wrong = bool(summary.losslessness.objection)
        colour = QUIET if wrong else of[model.decoder]
        inside = range(1, min(model.places, farthest) + 1)
        beyond = range(inside[-1], farthest + 1)
        axes.plot(inside, [model.speedup(i) for i in inside], color=colour)
        axes.plot(beyond, [model.speedup(i) for i in beyond], "--", color=colour)
        if summary.speedup:
            face = GROUND if wrong else colour
            axes.plot(k, summary.speedup.value, marks[model.decoder], color=colour,
                      markerfacecolor=face, label=shown(model.decoder))  # fmt: skip
    axes.set(xlabel="K, drafted tokens a round", ylabel="times as fast as plain decoding")
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower left")


def _draw_swept(
    figure: Any,
    axis: str,
    values: Sequence[str],
    points: Sequence[Point],
    decoders: Sequence[str],
    models: Sequence[CostModel],
) -> None:
    numbers = _numbers(values)
    places = dict(zip(values, numbers or range(len(values)), strict=True))
    of, marks = colours(decoders), dict(zip(decoders, cycle(MARKERS), strict=False))
    tasks = list(dict.fromkeys(point.task for point in points))
    panels = figure.subplots(len(tasks), 1, sharex=True, squeeze=False)[:, 0]
    named = set()
    for axes, task in zip(panels, tasks, strict=True):
        axes.axhline(1, color=INK, linewidth=1)
        axes.set_title(shown(task))
        for decoder in decoders:
            own = [p for p in points if (p.task, p.decoder) == (task, decoder)]
            if own:
                label = None if decoder in named else shown(decoder)
                _draw_points(axes, own, places, of[decoder], marks[decoder], label)
                named.add(decoder)
        for model in models:
            if model.task == task:
                ks = sorted(int(value) for value in values)
                axes.plot(ks, [model.speedup(k) for k in ks], "--", color=of[model.decoder])
    panels[-1].set_xticks(list(places.values()), [shown(value) for value in values])
    panels[-1].set_xlabel(axis)
    figure.supylabel("times as fast as plain decoding", fontsize="medium")
    figure.legend(loc="outside lower left")


def _numbers(values: Sequence[str]) -> list[float] | None:
    """The values as numbers, None where they are names."""
    try:
        return [float(value) for value in values]
    except ValueError:
        return None


def in_order(values: Sequence[str]) -> list[str]:
    """Numbers by size, as their axis has them: files come in the order of their names."""
    numbers = _numbers(values)
    return list(values) if numbers is None else sorted(values, key=float)


def _draw_points(
    axes: Any,
    points: Sequence[Point],
    places: Mapping[str, float],
    colour: str,
    marker: str,
    label: str | None,
) -> None:
    xs = [places[point.value] for point in points]
    axes.plot(xs, [p.estimate.value for p in points], color=colour, linewidth=1)
    for point, x in zip(points, xs, strict=True):
        low, high = point.estimate.low, point.estimate.high
        tone = QUIET if point.objection else colour
        if low is not None and high is not None:
            axes.plot([x, x], [low, high], color=tone, solid_capstyle="butt")
        face = GROUND if point.objection else tone
        axes.plot(x, point.estimate.value, marker, color=tone, markerfacecolor=face)
    axes.plot([], [], color=colour, marker=marker, label=label or "_")
