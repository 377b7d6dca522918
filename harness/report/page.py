"""The standings as one HTML file that needs no other: a matrix to scan, findings to unfold."""

from __future__ import annotations

from collections.abc import Sequence

from harness.record import VerdictRow
from harness.report.standings import (
    KNOWN,
    LETTERS,
    Standing,
    compact,
    counts,
    finding,
    in_order,
    item_name,
    outcome,
    shortened,
    words,
)
from harness.report.templating import environment

HOVER = 12  # lines that hovering over a cell shows
REPRO = 1_500  # characters of a reproduction; the record has it all


def html(found: Sequence[Standing]) -> str:
    """The page. All that comes from a record is escaped."""
    named = {
        "compact": compact,
        "counts": counts,
        "finding": finding,
        "item_name": item_name,
        "outcome": outcome,
        "shortened": shortened,
        "words": words,
        "worst_of": worst_of,
        "severity": severity,
        "hover": hover,
        "known": KNOWN,
        "letters": LETTERS,
        "most": REPRO,
    }
    suites = in_order(suite for standing in found for suite in standing.suites)
    template = environment().get_template("conformance.html.j2")
    return template.render(standings=found, suites=suites, **named)


def worst_of(rows: Sequence[VerdictRow]) -> str:
    """The kind of outcome that colours a cell: unsupported only where there is nothing else."""
    kinds = list(counts(rows))
    if not kinds:
        return "none"
    telling = [kind for kind in kinds if kind != "UNSUPPORTED"]
    return (telling or kinds)[0]


def severity(rows: Sequence[VerdictRow]) -> str:
    """A number by which cells sort, the worst as the highest; none for a suite that did not run."""
    if not rows:
        return ""
    kind = worst_of(rows)
    return str((len(LETTERS) - list(LETTERS).index(kind)) * 10**6 + counts(rows)[kind])


def hover(rows: Sequence[VerdictRow]) -> str:
    """The items of a cell, the worst first, as a tooltip."""
    order = list(LETTERS)
    ranked = sorted(rows, key=lambda row: order.index(outcome(row)))
    lines = [f"{outcome(row)}  {item_name(row.item)}" for row in ranked]
    more = len(lines) - HOVER
    return "\n".join(lines[:HOVER] + ([f"{more} more"] if more > 0 else []))
