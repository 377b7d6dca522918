"""What the records say in one number."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench.columns import columns
from harness.bench.summary import evidence_of, judge
from harness.record import Record
from harness.verdict import Status


def statuses(record: Record) -> dict[str, list[Status]]:
    """All that was concluded about each decoder; expected failures are left out."""
    found: dict[str, list[Status]] = {name: [] for name in record.header.decoders}
    for verdict in record.verdicts:
        if not verdict.expected_failure:
            found.setdefault(verdict.decoder, []).append(verdict.verdict.status)
    evidence = evidence_of(record.verdicts)
    rows = columns(record.generations)
    for name in rows.decoders:
        group = rows.of_decoder(name)
        lossy = name in record.header.options.get("declared_lossy", ())
        found.setdefault(name, []).append(judge(group, lossy, evidence.get(name)).status)
    return found


def exit_status(records: Sequence[Record]) -> int:
    """0 where losslessness was shown, 1 where it was refuted, 3 where neither was done."""
    groups = [group for record in records for group in statuses(record).values()]
    everything = [status for group in groups for status in group]
    if Status.FAIL in everything:
        return 1
    complete = not any(record.problems for record in records)
    unclear = {Status.ERROR, Status.INCONCLUSIVE} & set(everything)
    shown = all(Status.PASS in group for group in groups)
    return 0 if groups and complete and shown and not unclear else 3
