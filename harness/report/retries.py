"""Requests that had to be sent again: a server that answers at the second try is not well."""

from __future__ import annotations

from collections.abc import Iterator

from harness.record import Record
from harness.report.conformance import listed
from harness.report.document import Notes, Section

TITLE = "Sent again"


def add(record: Record, section: Section) -> None:
    """Add what was sent again to a section, if anything was."""
    if lines := list(_lines(record)):
        section.notes.append(Notes(TITLE, listed(lines)))


def _lines(record: Record) -> Iterator[str]:
    named = [row.decoder for row in record.verdicts] + [row.decoder for row in record.generations]
    for decoder in dict.fromkeys(named):
        judged = [row.retries for row in record.verdicts if row.decoder == decoder and row.retries]
        timed = [row.retries for row in record.generations if row.decoder == decoder]
        if judged:
            yield f"{decoder}: {sum(judged)} requests, in {len(judged)} checks"
        if any(timed):
            yield (
                f"{decoder}: {sum(timed)} requests, in {sum(map(bool, timed))} of {len(timed)} "
                "rows, whose seconds have the waiting in them"
            )
