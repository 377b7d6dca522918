"""Sections as data: the figures that their tables are made of, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness.report.document import Section

SCHEMA = 1  # of the JSON; a field that is added leaves it as it is
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet computes begins with these
ROWS = ("speedups", "claims", "standings")  # what a line of the CSV may be, the first that is there


def json_text(sections: Sequence[Section]) -> str:
    """Facts, figures and notes of every section; figures that are no numbers are null."""
    document = {
        "kind": "report",
        "schema": SCHEMA,
        "sections": [
            {
                "title": section.title,
                "facts": dict(section.facts),
                "figures": {
                    kind: [_as_data(figure) for figure in figures]
                    for kind, figures in section.figures.items()
                },
                "notes": {notes.title: notes.lines for notes in section.notes},
            }
            for section in sections
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def _as_data(figure: Any) -> Any:
    """With the objection to it, so that no reader takes for a result what is struck in a table."""
    found = msgspec.to_builtins(figure)
    if losslessness := getattr(figure, "losslessness", None):
        found["objection"] = losslessness.objection
    return found


def csv_text(sections: Sequence[Section]) -> str:
    """A line a decoder and task, of all sections; or a claim, or a suite, where those are shown."""
    kinds = {kind for section in sections for kind in section.figures}
    kind = next((kind for kind in ROWS if kind in kinds), "")
    lines = []
    for section in sections:
        origin = {"record": section.title, "started": dict(section.facts).get("started", "")}
        for figure in section.figures.get(kind, ()):
            lines.append(origin | dict(_flat(_as_data(figure))))
    lines = [{_inert(name): _inert(value) for name, value in line.items()} for line in lines]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def _inert(value: Any) -> Any:
    """What a spreadsheet shows, and does not compute; numbers are numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _flat(figure: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``speedup``, ``speedup_low``, ``speedup_high`` for an estimate; lists are one cell."""
    for name, value in figure.items():
        column = prefix.rstrip("_") if prefix and name == "value" else prefix + name
        if isinstance(value, dict):
            yield from _flat(value, f"{column}_")
        elif isinstance(value, list):
            yield column, "; ".join(map(str, value))
        else:
            yield column, value
