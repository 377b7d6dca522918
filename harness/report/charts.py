"""The figures of a benchmark: what its tables say, drawn. Nothing is computed that is not there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from harness.bench.columns import columns
from harness.bench.costs import Costs
from harness.bench.summary import Summary
from harness.bench.tasks import ALL_TASKS
from harness.record import GenerationRow
from harness.report.document import Chart
from harness.report.svg import GROUND, INK, QUIET, SERIES, drawn, shown

WIDTH = 5.4  # inches: on a telephone the text is still large enough to read
LINE = 0.21  # inches that a line of a legend or a row of points takes
MARKERS = "osD^vPX*"  # one more than there are colours: together they tell many decoders apart
MOST_ACCEPTED = 16  # a round that accepted more is counted with those of so many
SPEEDUP_TITLE = "Speedup by task"
HOLLOW = "Hollow: not lossless, so that the speedup is no result."
SPEEDUPS = (
    "Geometric mean over prompts with its 95% interval, as in the table; right of the line "
    "speculation is faster."
)
ACCEPTED = (
    "Share of the rounds that accepted so many drafted tokens; every round gives one token more, "
    "recovered or bonus."
)
PREDICTED = (
    "One point a decoder and task. Predicted is what the models' calls alone would give (ideal, "
    'in the table "Where the time goes"). On the line it is reached; below it the time between '
    "the calls takes the rest."
)


class Look(NamedTuple):
    """How the points of one decoder look, in every figure of a record."""

    colour: str
    marker: str
    label: str


class Speedup(NamedTuple):
    """A figure of the speed table; ``objection`` says why it is no result, if it is none."""

    task: str
    decoder: str
    low: float
    value: float
    high: float
    objection: str


class Prediction(NamedTuple):
    """What the costs of the calls allow, and what was measured on the same prompts."""

    task: str
    decoder: str
    predicted: float
    measured: float
    objection: str


def charts(
    rows: Sequence[GenerationRow],
    decoders: Sequence[str],
    summaries: Sequence[Summary],
    found: Sequence[Costs],
) -> list[Chart]:
    """The figures that a record has the data for, to be drawn when they are shown."""
    speedups = [point for summary in summaries for point in _speedup_of(summary)]
    labels = [_label(decoder, speedups) for decoder in decoders]
    looks = dict(zip(decoders, map(Look, cycle(SERIES), cycle(MARKERS), labels), strict=True))
    predictions = _predictions(found, summaries)
    of = columns(rows)
    accepted = {name: of.rounds.of(of.of_decoder(name).timed).histogram for name in decoders}
    telling = {name: Counter(counts) for name, counts in accepted.items() if counts}
    charts = []
    if speedups:
        lines = len(_distinct(speedups, 0)) + len(speedups) + len(_distinct(speedups, 1))
        draw = partial(_draw_speedups, speedups=speedups, looks=looks)
        words = [SPEEDUPS, *_hollow(speedups)]
        charts.append(chart(SPEEDUP_TITLE, words, draw, 0.8 + LINE * lines))
    if telling:
        draw = partial(_draw_accepted, counts=telling, looks=looks)
        height = 0.7 + 0.95 * len(telling)
        charts.append(chart("Accepted drafts of a round", [ACCEPTED], draw, height))
    if predictions:
        lines = max(len(_distinct(predictions, 0)), len(_distinct(predictions, 1)))
        draw = partial(_draw_predictions, predictions=predictions, looks=looks)
        words = [PREDICTED, *_hollow(predictions)]
        charts.append(
            chart("Predicted and measured speedup", words, draw, WIDTH - 0.4 + LINE * lines)
        )
    return charts


def chart(title: str, words: Sequence[str], draw: Any, height: float) -> Chart:
    """A figure whose caption is ``words``, drawn by ``draw`` on one of so many inches."""
    caption = " ".join(words)
    return Chart(title, caption, partial(drawn, draw, (WIDTH, height), f"{title}. {caption}"))


def _label(decoder: str, speedups: Iterable[Speedup]) -> str:
    """The name of a decoder, and what is to be said against all of its speedups."""
    objections = [point.objection for point in speedups if point.decoder == decoder] or [""]
    return shown(decoder) + (f" ({objections[0]})" if all(objections) else "")


def _hollow(points: Iterable[Speedup | Prediction]) -> list[str]:
    return [HOLLOW] if any(point.objection for point in points) else []


def _distinct(points: Sequence[Speedup | Prediction], field: int) -> list[str]:
    return list(dict.fromkeys(str(point[field]) for point in points))


def _speedup_of(summary: Summary) -> list[Speedup]:
    found = summary.speedup
    if found is None or not math.isfinite(found.value):
        return []
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    objection = summary.losslessness.objection
    return [Speedup(summary.task, summary.decoder, low, found.value, high, objection)]


def _predictions(found: Iterable[Costs], summaries: Iterable[Summary]) -> list[Prediction]:
    objections = {(s.task, s.decoder): s.losslessness.objection for s in summaries}
    points = [
        Prediction(
            task=of.task,
            decoder=of.decoder,
            predicted=of.ideal.value,
            measured=of.ideal.value * of.share.value,
            objection=objections.get((of.task, of.decoder), ""),
        )
        for of in found
        if of.task != ALL_TASKS
    ]
    return [p for p in points if math.isfinite(p.predicted) and math.isfinite(p.measured)]


def _draw_speedups(figure: Any, speedups: Sequence[Speedup], looks: Mapping[str, Look]) -> None:
    axes = figure.subplots()
    axes.axvline(1, color=INK, linewidth=1)
    tasks = _distinct(speedups, 0)
    place, places = 0.0, []
    for task in tasks:
        group = [point for point in speedups if point.task == task]
        places.append(place + (len(group) - 1) / 2)
        for point in group:
            _draw_speedup(axes, place, point, looks[point.decoder])
            place += 1
        place += 1
    axes.set_yticks(places, [shown(task) for task in tasks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - 1.2, -0.8)
    axes.grid(visible=False, axis="y")
    if objected := [point.high for point in speedups if point.objection]:
        low, high = axes.get_xlim()  # room for the words right of a point
        axes.set_xlim(low, max(high, max(objected) + 0.32 * (high - low)))
    axes.set_xlabel("times as fast as plain decoding")
    handles = []
    for decoder in _distinct(speedups, 1):
        good = any(not point.objection for point in speedups if point.decoder == decoder)
        handles.append(_handle(looks[decoder], good))
    figure.legend(handles=handles, loc="outside lower left")


def _draw_speedup(axes: Any, place: float, point: Speedup, look: Look) -> None:
    colour = QUIET if point.objection else look.colour
    face = GROUND if point.objection else colour
    axes.plot([point.low, point.high], [place, place], color=colour, solid_capstyle="butt")
    axes.plot(point.value, place, look.marker, color=colour, markerfacecolor=face)
    if point.objection:
        box = {"facecolor": GROUND, "edgecolor": "none", "pad": 1}
        axes.annotate(point.objection, (point.high, place), (7, 0), textcoords="offset points",
                      va="center", color=QUIET, fontsize="small", bbox=box)  # fmt: skip


def _handle(look: Look, good: bool) -> Any:
    from matplotlib.lines import Line2D

    colour = look.colour if good else QUIET
    return Line2D([], [], color=colour, marker=look.marker, label=look.label,
                  markerfacecolor=colour if good else GROUND)  # fmt: skip


def _draw_accepted(
    figure: Any, counts: Mapping[str, Counter[int]], looks: Mapping[str, Look]
) -> None:
    """Rounds by how many drafts they accepted: those behind ``tokens/call``, by decoder."""
    longest = max(max(count) for count in counts.values())
    most = min(longest, MOST_ACCEPTED)
    panels = figure.subplots(len(counts), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (decoder, count) in zip(panels, counts.items(), strict=True):
        shares = [count[length] / count.total() for length in range(most)]
        axes.bar(range(most + 1), [*shares, 1 - sum(shares)], 0.72, color=looks[decoder].colour)
        axes.set_title(looks[decoder].label)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.locator_params(axis="y", nbins=3)
    last = f"{most}+" if longest > most else str(most)
    panels[-1].set_xticks(range(most + 1), [*map(str, range(most)), last])
    panels[-1].set_xlabel("accepted drafted tokens")
    figure.supylabel("share of rounds", fontsize="medium")


def _draw_predictions(
    figure: Any, predictions: Sequence[Prediction], looks: Mapping[str, Look]
) -> None:
    from matplotlib.lines import Line2D

    axes = figure.subplots()
    shapes = dict(zip(_distinct(predictions, 0), cycle(MARKERS), strict=False))
    for point in predictions:
        colour = looks[point.decoder].colour
        face = GROUND if point.objection else colour
        place = (point.predicted, point.measured)
        axes.plot(*place, shapes[point.task], color=colour, markerfacecolor=face)
    ends = [end for point in predictions for end in (point.predicted, point.measured)]
    margin = 0.08 * (max(ends) - min(ends)) or 0.1
    reach = (min(ends) - margin, max(ends) + margin)
    axes.plot(reach, reach, color=INK, linewidth=1, zorder=1)
    axes.set(xlim=reach, ylim=reach, aspect="equal", xlabel="predicted", ylabel="measured")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}x")
    of_decoders = [
        Line2D([], [], color=looks[decoder].colour, linewidth=5, label=looks[decoder].label)
        for decoder in _distinct(predictions, 1)
    ]
    of_tasks = [
        Line2D([], [], color=QUIET, linestyle="", marker=marker, label=shown(task))
        for task, marker in shapes.items()
    ]
    figure.legend(handles=of_decoders, loc="outside lower left")
    figure.legend(handles=of_tasks, loc="outside lower right")
