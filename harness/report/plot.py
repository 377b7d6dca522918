"""Speedup by task as an image of its own, for a README: the figure of the page in plain colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from harness.bench.summary import Summary
from harness.report.charts import SPEEDUP_TITLE, chart
from harness.report.document import Section
from harness.report.formats import one_line
from harness.report.svg import NAMESPACE
from harness.report.templating import environment

SHEETS = ("base.css", "report.css")  # where the page names its colours
FONT = "DejaVu Sans, Verdana, sans-serif"
NOTHING = "Nothing was timed."


def svg_text(sections: Sequence[Section]) -> str:
    """The figure of the first section that has one; where none has, one that says so."""
    found = [
        (drawn, section.figures["speedups"])
        for section in sections
        for drawn in section.charts
        if drawn.title == SPEEDUP_TITLE
    ]
    drawn, summaries = found[0] if found else (chart(SPEEDUP_TITLE, [NOTHING], _nothing, 0.6), [])
    text = _alone(drawn.draw("speedup"), described(summaries) or NOTHING)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + text


def described(summaries: Sequence[Summary]) -> str:
    """What is drawn, in words: for those who do not see it, and to compare it with a record."""
    return "; ".join(
        f"{one_line(f'{of.task}, {of.decoder}')}: {of.speedup.value:.3f}"
        + (f" [{of.speedup.low:.3f}, {of.speedup.high:.3f}]" if of.speedup.low is not None else "")
        + (f", {of.losslessness.objection}" if of.losslessness.objection else "")
        for of in summaries
        if of.speedup
    )


def _nothing(figure: Any) -> None:
    figure.text(0.5, 0.5, NOTHING, ha="center", va="center")


def _alone(text: str, description: str) -> str:
    """A figure of a page as a file: nothing but a page knows the page's colours and its font."""
    colours = _light()
    text = text.replace("currentColor", colours["ink"])
    text = re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], text)
    root = ElementTree.fromstring(text)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib |= {"width": width, "height": height, "font-family": FONT}
    described = ElementTree.Element(f"{{{NAMESPACE}}}desc")
    described.text = description
    root.insert(1, described)  # behind the title
    ground = {"width": "100%", "height": "100%", "fill": colours["panel"]}
    root.insert(2, ElementTree.Element(f"{{{NAMESPACE}}}rect", ground))
    return ElementTree.tostring(root, encoding="unicode")


def _light() -> dict[str, str]:
    """The page's colours by name, as they are in the light."""
    loader = environment().loader
    assert loader is not None
    sheets = [loader.get_source(environment(), name)[0] for name in SHEETS]
    return dict(re.findall(r"--([\w-]+): light-dark\((#\w+),", "".join(sheets)))
