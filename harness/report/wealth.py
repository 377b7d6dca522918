"""The evidence against each decoder of a sampled run, token by token: wealth of the e-process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from harness.bench.summary import EVIDENCE
from harness.record import VerdictRow
from harness.report.charts import LINE, chart
from harness.report.document import Chart
from harness.report.svg import INK, SERIES, shown

TITLE = "Evidence against the decoder"
WORDS = (
    "Wealth of the bets against the target's law after so many tokens that were timed, as a power "
    "of ten; dashed: the plain arm, the control. A decoder that follows the law reaches the line, "
    "1 / alpha, with a probability of at most alpha, whenever one looks."
)
Path = list[tuple[int, float]]


class Curves(NamedTuple):
    """Tokens and log10 wealth of both arms of one decoder; ``alpha`` is that of an arm."""

    decoder: str
    alpha: float
    speculative: Path
    plain: Path


def charts(verdicts: Sequence[VerdictRow], decoders: Sequence[str]) -> list[Chart]:
    """The figure, where a record has what it takes: older ones have not."""
    found = [
        _curves(row)
        for row in verdicts
        if row.item.startswith(EVIDENCE) and "path" in row.verdict.evidence
    ]
    if not found:
        return []
    colours = dict(zip(decoders, cycle(SERIES), strict=False))
    draw = partial(_draw, curves=found, colours=colours)
    return [chart(TITLE, [WORDS], draw, 3.2 + LINE * (len(found) + 1))]


def _curves(row: VerdictRow) -> Curves:
    told = row.verdict.evidence
    arms = (told["path"], told["plain_arm"]["path"])
    speculative, plain = ([(tokens, wealth) for tokens, wealth in arm] for arm in arms)
    return Curves(row.decoder, told["alpha_of_an_arm"], speculative, plain)


def _draw(figure: Any, curves: Sequence[Curves], colours: dict[str, str]) -> None:
    axes = figure.subplots()
    threshold = -math.log10(min(of.alpha for of in curves))
    axes.axhline(threshold, color=INK, linewidth=1)
    axes.annotate(f"1 / alpha = {10**threshold:.3g}: not lossless", (0, threshold), (4, 4),
                  xycoords=("axes fraction", "data"), textcoords="offset points")  # fmt: skip
    for of in curves:
        colour = colours[of.decoder]
        axes.plot(*zip(*of.speculative, strict=True), color=colour, label=shown(of.decoder))
        axes.plot(*zip(*of.plain, strict=True), "--", color=colour, linewidth=1)
    axes.plot([], [], "--", color=INK, linewidth=1, label="its plain arm")
    lowest = min(wealth for of in curves for _, wealth in [*of.speculative, *of.plain])
    # A wrong decoder's wealth has no end: what lies far above the line is cut off.
    bottom = max(lowest, -threshold) - 0.5
    axes.set(xlim=(0, None), ylim=(bottom, 2 * threshold), xlabel="tokens", ylabel="log10 wealth")
    figure.legend(loc="outside lower left")
