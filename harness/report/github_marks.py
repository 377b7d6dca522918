"""What is wrong in a benchmark, as marks in the log of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench.regression import REGRESSIONS
from harness.bench.row_figures import verdict_of
from harness.record import Record
from harness.report.document import Section
from harness.report.github import MARKED, mark
from harness.report.outcome import statuses
from harness.report.regression import words
from harness.verdict import Status

WRONG = (Status.FAIL, Status.ERROR)


def marks(records: Sequence[Record], sections: Sequence[Section] = ()) -> list[str]:
    """Errors for what is not lossless or regressed, warnings for what nothing can be said about."""
    errors, warnings = [], []
    for record in records:
        for decoder, found in statuses(record).items():
            if Status.FAIL in found:
                errors.append(mark("error", f"FAIL {decoder}", _why(record, decoder)))
            elif Status.ERROR in found:
                warnings.append(mark("warning", f"ERROR {decoder}", _why(record, decoder)))
        warnings += [mark("warning", "record", problem) for problem in record.problems]
    for section in sections:
        for change in section.figures.get("changes", ()):
            if change.outcome in REGRESSIONS:
                errors.append(mark("error", f"regression {change.decoder}", words(change)))
    return [*errors, *warnings][:MARKED]


def _why(record: Record, decoder: str) -> str:
    """The first thing that went wrong, and how many more there are."""
    told = [
        f"{row.task}, {row.prompt_id}: {row.error or row.fault or 'the outputs differ'}"
        for row in record.generations
        if row.decoder == decoder and verdict_of(row) in WRONG
    ]
    told += [
        f"{row.item}: {row.verdict.message}"
        for row in record.verdicts
        if row.decoder == decoder and not row.expected_failure and row.verdict.status in WRONG
    ]
    first = told[0] if told else "see the report"
    return f"{first} (and {len(told) - 1} more)" if len(told) > 1 else first
