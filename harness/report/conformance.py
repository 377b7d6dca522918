"""The verdicts of a record: a count of each status, and every one that needs a look."""

from __future__ import annotations

from collections import Counter

from harness.bench.summary import EVIDENCE
from harness.record import Record, VerdictRow
from harness.report.document import Cell, Notes, Section, Table
from harness.verdict import Status

SHOWN = 20  # lines of one kind; the record has them all


def add(record: Record, section: Section) -> None:
    """Add what the suites found to a section."""
    suites = [row for row in record.verdicts if row.suite != "benchmark"]
    if suites:
        section.tables.append(_table(suites))
    # The evidence of sampled outputs is told beside their speedups.
    others = [row for row in record.verdicts if not row.item.startswith(EVIDENCE)]
    for status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.UNSUPPORTED):
        rows = [row for row in others if row.verdict.status is status and not row.expected_failure]
        if status is Status.UNSUPPORTED:
            rows = [row for row in rows if row.suite == "benchmark"]  # the suites' are in the table
        if rows:
            section.notes.append(Notes(status.value, listed([_line(row) for row in rows])))
    if expected := [row for row in record.verdicts if row.expected_failure]:
        lines = [f"{_line(row)} (expected: {row.expected_failure})" for row in expected]
        section.notes.append(Notes("Expected failures", listed(lines)))


def listed(lines: list[str]) -> list[str]:
    """The first lines, and how many were left out."""
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"{more} more in the record"]


def _table(rows: list[VerdictRow]) -> Table:
    groups = list(dict.fromkeys((row.decoder, row.suite) for row in rows))
    cells: list[list[Cell]] = []
    for decoder, suite in groups:
        group = [row for row in rows if (row.decoder, row.suite) == (decoder, suite)]
        counts = Counter(row.verdict.status for row in group if not row.expected_failure)
        expected = sum(bool(row.expected_failure) for row in group)
        figures = [*(counts[status] for status in Status), expected]
        cells.append([suite, decoder, *(str(figure or "") for figure in figures)])
    columns = ["suite", "decoder", *(status.value for status in Status), "expected failure"]
    return Table("Conformance", columns, sorted(cells, key=str))


def _line(row: VerdictRow) -> str:
    fault = f"; likely fault: {row.verdict.likely_fault}" if row.verdict.likely_fault else ""
    return f"{row.decoder}, {row.item}: {row.verdict.message}{fault}"
