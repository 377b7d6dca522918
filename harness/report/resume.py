"""Going on with a record that was interrupted: what is there is kept, and the rest is measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.bench.measure import Trial
from harness.command_line import BadInput
from harness.record import (
    Footer,
    GenerationRow,
    Header,
    RecordError,
    Row,
    VerdictRow,
    Writer,
    read,
)

_decoder = msgspec.json.Decoder(Row)
ANEW = "leave out --resume to measure anew"
CHANGES = ("command", "started")  # from run to run; in the options ``load_average``


@dataclass(frozen=True)
class Kept:
    """What a record has already.

    Attributes
    ----------
    bytes : int
        Of the file, up to the end of its last good row.
    torn : bool
        Whether something came after, which is dropped.
    """

    generations: list[GenerationRow] = field(default_factory=list)
    verdicts: list[VerdictRow] = field(default_factory=list)
    bytes: int = 0
    torn: bool = False

    def writer(self, path: Path, header: Header) -> Writer:
        """Appends behind what is kept; a new record where that is nothing."""
        if not self.bytes:
            return Writer(path, header)
        return Writer.behind(path, self.bytes, len(self.generations) + len(self.verdicts))

    def missing(self, trials: list[Trial]) -> list[Trial]:
        """Those that have no row yet."""
        done = {(row.decoder, row.task, row.prompt_id, row.repeat) for row in self.generations}
        return [
            trial
            for trial in trials
            if (trial.decoder, trial.prompt.task, trial.prompt.prompt_id, trial.repeat) not in done
        ]

    def judged(self, decoder: str) -> bool:
        """Whether there is a verdict on a decoder."""
        return any(row.decoder == decoder for row in self.verdicts)


def require(path: Path) -> None:
    """Raise BadInput unless there is something to go on with."""
    if not path.exists():
        raise BadInput(f"there is no {path} to resume: {ANEW}")


def kept(path: Path, header: Header) -> Kept:
    """What is in the record at ``path``, which must be of the run that ``header`` is of.

    Raises
    ------
    BadInput
        If it is no record, is damaged before its last line, or is of another run.
    """
    try:
        record = read(path)
    except RecordError as error:
        raise BadInput(f"{error}: {ANEW}") from None
    if difference := _difference(record.header, header):
        raise BadInput(f"{path} is of another run: {difference}; give the same options, or {ANEW}")
    lines = path.read_bytes().splitlines(keepends=True)
    rows = [_row(line) for line in lines]
    torn = rows[-1] is None
    if None in rows[:-1]:
        raise BadInput(f"{path} is damaged before its last line: {ANEW}")
    if torn or isinstance(rows[-1], Footer):  # a finished record lacks nothing
        del lines[-1], rows[-1]
    return Kept(
        generations=[row for row in rows if isinstance(row, GenerationRow)],
        verdicts=[row for row in rows if isinstance(row, VerdictRow)],
        bytes=sum(map(len, lines)),
        torn=torn,
    )


def _row(line: bytes) -> Row | None:
    """None for a line that is not whole."""
    try:
        return _decoder.decode(line) if line.endswith(b"\n") else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _difference(one: Header, other: Header) -> str:
    """The first thing in which two headers differ that must not, in words."""
    old, new = _told(one), _told(other)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name} was {_short(old.get(name))}, and is {_short(new.get(name))}"
    return ""


def _told(header: Header) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(header)
    options = {k: v for k, v in told.pop("options").items() if k != "load_average"}
    told = {name: value for name, value in told.items() if name not in CHANGES}
    pair = {f"pair {name}": value for name, value in told.pop("pair").items()}
    found: dict[str, Any] = json.loads(json.dumps(told | options | pair))  # tuples are lists there
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
