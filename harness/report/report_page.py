"""Sections as one HTML file that needs no other: tables that sort, figures, where outputs differ.

What the terminal and Markdown show is shown from the same objects. A new table, figure or note of a
section appears by itself; a new kind of content takes a field of ``Section`` and a macro.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from harness.bench.tasks import ALL_TASKS
from harness.report.document import Chart, Section
from harness.report.templating import environment

MARKS = {  # words a verdict begins with, and the colours of what
    **{word: word for word in ("PASS", "FAIL", "ERROR", "INCONCLUSIVE", "UNSUPPORTED")},
    "LOSSY": "xfail",
    "near tie": "PASS",
    **dict.fromkeys(("supported", "no regression", "faster"), "PASS"),
    **dict.fromkeys(("contradicted", "regression", "lossless no more"), "FAIL"),
    "undecided": "INCONCLUSIVE",
    **dict.fromkeys(("not measured", "no result"), "UNSUPPORTED"),
}


def html(sections: Sequence[Section]) -> str:
    """The page. All that comes from a record is escaped."""
    title, more = sections[0].title, len(sections) - 1
    if more:
        title += f", and {more} more"
    return (
        environment()
        .get_template("report.html.j2")
        .render(title=title, sections=sections, drawing=drawing, mark=mark, everything=ALL_TASKS)
    )


def drawing(chart: Chart, prefix: str) -> Markup:
    """The SVG of a chart, which escapes what it says itself."""
    return Markup(chart.draw(prefix))


def mark(verdict: str) -> str:
    """The class that colours a verdict."""
    return next((kind for word, kind in MARKS.items() if verdict.startswith(word)), "none")
