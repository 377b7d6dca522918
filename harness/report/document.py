"""What a report consists of, before any format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Struck:
    """A figure that must not be read as a result, and why."""

    text: str
    reason: str


Cell = str | Struck


@dataclass(frozen=True)
class Table:
    """A titled table; every row has a cell a column. ``detail``: as of ``Notes``."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    detail: bool = False


@dataclass(frozen=True)
class Notes:
    """A titled list of sentences, or of commands to paste (``verbatim``).

    ``detail`` is what a terminal shows only if it is asked to.
    """

    title: str
    lines: list[str]
    verbatim: bool = False
    detail: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure of the HTML report; terminal and Markdown leave it out.

    Attributes
    ----------
    caption : str
        What is drawn, and how to read it.
    draw : callable
        SVG, whose ids begin with what it is given. Only called by who shows it: drawing takes
        matplotlib.
    """

    title: str
    caption: str
    draw: Callable[[str], str]


@dataclass(frozen=True)
class Difference:
    """Where a speculative output leaves the plain one.

    Attributes
    ----------
    kind : str
        FAIL, ERROR, LOSSY or near tie.
    where : str
        Task and prompt.
    prefix : int
        Ids that both outputs begin with.
    plain, speculative : list of str
        The ids after those, and how the output ended if it is not cut off here.
    words : str
        What the record says of it.
    """

    kind: str
    where: str
    prefix: int
    plain: list[str]
    speculative: list[str]
    words: str


@dataclass(frozen=True)
class Differences:
    """Of one decoder; ``total`` counts those that are not listed as well."""

    decoder: str
    listed: list[Difference]
    total: int


@dataclass(frozen=True)
class Section:
    """All about one record. Charts and differences are for formats that can show them.

    ``figures`` are what the tables were made of, by kind, for formats that programs read.
    """

    title: str
    facts: list[tuple[str, str]]
    tables: list[Table] = field(default_factory=list)
    notes: list[Notes] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    differences: list[Differences] = field(default_factory=list)
    figures: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def brief(self) -> Section:
        """The same without what is ``detail``."""
        return replace(
            self,
            tables=[table for table in self.tables if not table.detail],
            notes=[notes for notes in self.notes if not notes.detail],
        )
