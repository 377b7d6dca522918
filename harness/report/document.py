"""What a report consists of, before any format."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Struck:
    """A figure that must not be read as a result, and why."""

    text: str
    reason: str


Cell = str | Struck


@dataclass(frozen=True)
class Table:
    """A titled table; every row has a cell a column."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Notes:
    """A titled list of sentences, or of commands to paste (``verbatim``)."""

    title: str
    lines: list[str]
    verbatim: bool = False


@dataclass(frozen=True)
class Section:
    """All about one record."""

    title: str
    facts: list[tuple[str, str]]
    tables: list[Table] = field(default_factory=list)
    notes: list[Notes] = field(default_factory=list)
