"""Figures of matplotlib as SVG that belongs to a page: its colours, its font, ids of their own.

Colours are written as stand-ins, which no figure uses otherwise, and become those of the page: what
is drawn once is readable in the dark, in the light, and on paper.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

INK, QUIET, GROUND, LINE = "#010101", "#020202", "#030303", "#040404"
SERIES = tuple(f"#0500{i:02d}" for i in range(1, 8))
PAGE = {
    INK: "currentColor",
    QUIET: "var(--quiet)",
    GROUND: "var(--panel)",
    LINE: "var(--line)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(SERIES, 1)},
}
NAMESPACE = "http://www.w3.org/2000/svg"
LINK = "http://www.w3.org/1999/xlink"
LONGEST = 40  # characters of a name in a figure; tables have all of them
STYLE = {
    "svg.fonttype": "none",  # text, in the font of the page
    "svg.hashsalt": "specdec-harness",  # the same record gives the same file
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 10.5,
    "text.parse_math": False,  # a decoder may be called a$b$
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
}


def drawn(draw: Callable[[Any], None], size: tuple[float, float], title: str, prefix: str) -> str:
    """What ``draw`` draws on a figure, as an ``<svg>`` element.

    Parameters
    ----------
    draw : callable
        Given a ``matplotlib.figure.Figure``.
    size : tuple of float
        In inches. The page scales it to the room there is.
    title : str
        Said instead of the figure where it cannot be seen.
    prefix : str
        Of all ids, so that several figures fit on one page.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's may have it
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(file, format="svg", metadata=nothing)
    return _of_page(file.getvalue(), title, prefix)


def shown(name: str) -> str:
    """A name as text of a figure: short, and nothing in it that XML cannot hold."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return printable if len(printable) <= LONGEST else printable[: LONGEST - 3] + "..."


def _of_page(text: str, title: str, prefix: str) -> str:
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):  # a style element would hold for the whole page
            if child.tag in (f"{{{NAMESPACE}}}style", f"{{{NAMESPACE}}}metadata"):
                parent.remove(child)
    for element in root.iter():
        for name, value in element.attrib.items():
            element.set(name, _attribute(name, value, prefix))
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-labelledby": f"{prefix}-title"}
    named = ElementTree.Element(f"{{{NAMESPACE}}}title", {"id": f"{prefix}-title"})
    named.text = title
    root.insert(0, named)
    ElementTree.register_namespace("", NAMESPACE)
    ElementTree.register_namespace("xlink", LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == f"{{{LINK}}}href":
        return value.replace("#", f"#{prefix}-", 1)
    if name == "style":
        value = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", value)  # matplotlib < 3.10
        value = re.sub(r"font-family: [^;]*;? ?", "", value)
        value = re.sub(r"#[0-9a-f]{6}\b", lambda found: PAGE.get(found[0], found[0]), value)
    return re.sub(r"url\(#", f"url(#{prefix}-", value)
