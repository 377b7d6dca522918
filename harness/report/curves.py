"""Figures of what changes with a setting: predicted speedup over K, and what a sweep measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from harness.bench.cost_model import CostModel
from harness.bench.summary import Summary
from harness.report.charts import HOLLOW, LINE, MARKERS, chart
from harness.report.document import Chart
from harness.report.svg import GROUND, INK, QUIET, SERIES, shown

LOOKS = ("-", "--", ":", "-.")  # of lines, when the colours have all been used
PREDICTED = (
    "Lines: what acceptance by position and the measured costs predict; dashed where the last "
    "acceptance rate is taken to go on. Points: measured."
)


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
