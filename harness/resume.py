"""Going on with a record that was interrupted: what it has, and whether it is of the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.command_line import BadInput
from harness.record import (
    SCHEMA,
    Footer,
    GenerationRow,
    Header,
    RecordError,
    Row,
    VerdictRow,
    Writer,
    read,
)

ANEW = "leave out --resume to begin anew"
CHANGES = ("command", "started", "load_average")  # from start to start of the same run
_BEGINNING = f'{{"kind":"header","schema":{SCHEMA},'.encode()
_decoder = msgspec.json.Decoder(Row)


@dataclass(frozen=True)
class Kept:
    """What a record has already.

    Attributes
    ----------
    generations : list of GenerationRow
    verdicts : list of VerdictRow
    bytes : int
        Of the file, up to the end of its last good row; 0 where it has to be begun anew.
    told : str
        In words, for who resumes: how many rows are kept, and what is wrong with the file.
    """

    generations: list[GenerationRow] = field(default_factory=list)
    verdicts: list[VerdictRow] = field(default_factory=list)
    bytes: int = 0
    told: str = ""

    def writer(self, path: Path, header: Header) -> Writer:
        """Appends behind what is kept; a new record where that is nothing."""
        if not self.bytes:
            return Writer(path, header)
        return Writer.behind(path, self.bytes, len(self.generations) + len(self.verdicts))


def require(path: Path) -> None:
    """Raise BadInput unless there is something to go on with."""
    if not path.is_file():
        raise BadInput(f"there is no {path} to resume: {ANEW}")


def kept(path: Path, header: Header) -> Kept:
    """What is in the record at ``path``, which must be of the run that ``header`` is of.

    Raises
    ------
    BadInput
        If it is no record, is of another schema, is damaged before its last line, or is of another
        run; the message says in what they differ.
    """
    try:
        with path.open("rb") as file:
            lines = list(file)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if _unborn(lines):
        return Kept(told=f"{path} has no whole header, and is begun anew")
    try:
        old = read(path).header
    except RecordError as error:
        raise BadInput(f"{error}: {ANEW}") from None
    if found := difference(old, header):
        raise BadInput(f"{path} is of another run: {found}; give the same options, or {ANEW}")
    rows = [_row(line) for line in lines]
    for number, row in enumerate(rows[1:-1], 2):
        if not isinstance(row, VerdictRow | GenerationRow):
            raise BadInput(f"{path} is damaged before its last line, in line {number}: {ANEW}")
    state = "it has no footer, for the run did not come to its end"
    if rows[-1] is None:
        state = "its last line is torn, and is dropped"
    elif isinstance(rows[-1], Footer):
        state = "the run had come to its end"
    if rows[-1] is None or isinstance(rows[-1], Footer):
        del lines[-1], rows[-1]
    return Kept(
        generations=[row for row in rows if isinstance(row, GenerationRow)],
        verdicts=[row for row in rows if isinstance(row, VerdictRow)],
        bytes=sum(map(len, lines)),
        told=f"{len(rows) - 1} rows of {path} are kept; {state}",
    )


def _unborn(lines: list[bytes]) -> bool:
    """Whether a run was ended before its header was whole; of anything else, nothing is lost."""
    data = b"".join(lines)
    cut = data[: len(_BEGINNING)]
    return b"\n" not in data and cut == _BEGINNING[: len(cut)]


def _row(line: bytes) -> Row | None:
    """None for a line that is not whole."""
    try:
        return _decoder.decode(line) if line.endswith(b"\n") else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def difference(one: Header, other: Header) -> str:
    """The first thing in which two headers differ that must not, in words; empty if none."""
    old, new = _told(one), _told(other)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name} was {_short(old.get(name))}, and is {_short(new.get(name))}"
    return ""


def _told(header: Header) -> dict[str, Any]:
    """What a header says by name, of one level; options go by their own names."""
    told: dict[str, Any] = json.loads(msgspec.json.encode(header))
    return dict(_flat({**told.pop("options"), **told}))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name in CHANGES and not prefix:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
