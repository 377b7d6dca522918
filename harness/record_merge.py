"""``python -m harness.record_merge SHARD... --out FILE``: records of one run's shards as one.

A verdict is known by decoder and item, a generation by decoder, task, prompt and repeat. What two
shards both have (a machine was given up, and its share run again) is kept once, if they agree.

exit status: 0 the run is whole, 2 the records are not of one run, or contradict each other, 3 a
shard, or the end of one, is missing: what is there was merged, and the record has no footer
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.command_line import Parser, refuse
from harness.record import (
    GenerationRow,
    Header,
    Record,
    RecordError,
    VerdictRow,
    Writer,
    check_writable,
    command_line,
    read,
)

SHARD = "shard"  # of the header's options: "2/4"
OF_A_SHARD = (SHARD, "load_average")


@dataclass(frozen=True)
class Merged:
    """Shards as one.

    Attributes
    ----------
    rows : list of VerdictRow or GenerationRow
    doubled : int
        Rows that were there already.
    missing : list of str
        What keeps the run from being whole, in words.
    """

    header: Header
    rows: list[VerdictRow | GenerationRow]
    doubled: int
    missing: list[str] = field(default_factory=list)


def merge(shards: Sequence[tuple[str, Record]]) -> Merged:
    """Put the records together, in the order of their shards.

    Parameters
    ----------
    shards : sequence of (str, Record)
        By the names that problems are told by.

    Raises
    ------
    RecordError
        If they are not shards of one run, or two of them give one row differently.
    """
    ordered = sorted(shards, key=lambda shard: _number(shard[1].header))
    name, first = ordered[0]
    if not first.header.run:
        raise RecordError(f"{name} has no run id: it is no shard (see python -m harness.fleet)")
    rows: dict[Hashable, VerdictRow | GenerationRow] = {}
    missing: list[str] = []
    doubled = 0
    for other, record in ordered:
        if difference := _difference(first.header, record.header):
            raise RecordError(f"{name} and {other} are not of one run: {difference}")
        missing += [f"{other}: {problem}" for problem in record.problems]
        own: list[VerdictRow | GenerationRow] = [*record.verdicts, *record.generations]
        for row in own:
            known = rows.setdefault(key(row), row)
            doubled += known is not row
            if _says(known) != _says(row):
                raise RecordError(f"{other} contradicts an earlier shard: {' '.join(key(row))}")
    missing += _absent([record.header for _, record in ordered])
    machines = [record.header.machine for _, record in ordered]
    header = msgspec.structs.replace(
        first.header,
        command=command_line(),
        started=min(record.header.started for _, record in ordered),
        machine={
            fact: " and ".join(dict.fromkeys(m[fact] for m in machines if fact in m))
            for fact in dict.fromkeys(fact for m in machines for fact in m)
        },
        options={k: v for k, v in first.header.options.items() if k not in OF_A_SHARD},
    )
    return Merged(header, list(rows.values()), doubled, missing)


def key(row: VerdictRow | GenerationRow) -> tuple[str, ...]:
    """What a row is known by."""
    if isinstance(row, VerdictRow):
        return row.decoder, row.item
    return row.decoder, row.task, row.prompt_id, str(row.repeat)


def write(merged: Merged, path: Path) -> None:
    """Write the record; without a footer where something is missing, as of any broken run."""

    class Broken(Exception):
        pass

    try:
        with Writer(path, merged.header) as writer:
            for row in merged.rows:
                writer.add(row)
            if merged.missing:
                raise Broken
    except Broken:
        return


def _says(row: VerdictRow | GenerationRow) -> object:
    """What must be the same however often a row is made."""
    if isinstance(row, VerdictRow):
        return row.verdict.status
    return row.plain_tokens, row.tokens


def _number(header: Header) -> int:
    """Which shard it is, from 1 on; 0 for what does not say."""
    number = str(header.options.get(SHARD, "")).partition("/")[0]
    return int(number) if number.isdigit() else 0


def _absent(headers: Sequence[Header]) -> list[str]:
    """Shards that the others count and nobody has."""
    count = str(headers[0].options.get(SHARD, "")).partition("/")[2]
    there = {_number(header) for header in headers}
    wanted = range(1, int(count) + 1) if count.isdigit() else ()
    return [f"shard {number}/{count} is not there" for number in wanted if number not in there]


def _difference(one: Header, other: Header) -> str:
    """The first thing in which shards must not differ, in words."""
    old, new = _told(one), _told(other)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name)} and {new.get(name)}"
    return ""


def _told(header: Header) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(header)
    options = {k: v for k, v in header.options.items() if k not in OF_A_SHARD}
    count = str(header.options.get(SHARD, "")).partition("/")[2]
    apart = ("options", "command", "started", "machine")
    return {k: v for k, v in told.items() if k not in apart} | options | {"shards": count}


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge the files."""
    parser = Parser("python -m harness.record_merge", __doc__)
    parser.add_argument("records", type=Path, nargs="+", metavar="SHARD")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        if options.out in options.records:
            raise RecordError(f"--out {options.out} is one of the shards: name another file")
        merged = merge([(str(path), read(path)) for path in options.records])
        check_writable("--out", options.out)
        write(merged, options.out)
    except ValueError as error:
        return refuse(error)
    twice = f", {merged.doubled} of them twice" if merged.doubled else ""
    print(f"written: {options.out}, {len(merged.rows)} rows of run {merged.header.run}{twice}")
    for problem in merged.missing:
        print(f"missing: {problem}", file=sys.stderr)
    return 3 if merged.missing else 0


if __name__ == "__main__":
    sys.exit(main())
