"""The rows of a record as columns: what many figures need of every row, computed once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.bench.row_figures import repetition, timeable, unit, verdict_of
from harness.bench.tasks import ALL_TASKS
from harness.record import PARTS, GenerationRow
from harness.verdict import Status

STATUSES = tuple(Status)  # a verdict is its place here
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Table:
    """Some of the rows of a record; ``table["cost"]`` is a figure of each of them.

    Attributes
    ----------
    columns : mapping of str to ndarray
        Of all rows of the record: see ``Columns``.
    numbers : ndarray [n], int64
        Which of them these are, ascending.
    """

    columns: Mapping[str, NDArray[Any]]
    numbers: Ints

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One figure of these rows, [n]."""
        found: NDArray[Any] = self.columns[name][self.numbers]
        return found

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def where(self, chosen: Bools) -> Table:
        """Those of the rows for which ``chosen`` [n] holds."""
        return Table(self.columns, self.numbers[chosen])

    @property
    def timed(self) -> Table:
        """Those that could be timed."""
        return self.where(self["timeable"])


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of all rows that tell them in good form, one after another.

    Attributes
    ----------
    row, drafted, accepted : ndarray [n], int64
        ``row`` is a number, as in ``Table``.
    """

    row: Ints
    drafted: Ints
    accepted: Ints

    @property
    def histogram(self) -> dict[int, int]:
        """How many of them accepted so many drafts."""
        counts = np.bincount(self.accepted.clip(0))  # below 0 is nonsense, which doubts tell
        return {accepted: n for accepted, n in enumerate(counts.tolist()) if n}

    def of(self, table: Table) -> Rounds:
        """Those of some rows."""
        chosen = np.zeros(len(table.columns["rounds"]), np.bool_)
        chosen[table.numbers] = True
        mine = chosen[self.row]
        return Rounds(self.row[mine], self.drafted[mine], self.accepted[mine])


class Columns:
    """Rows as one table.

    Its columns are numbers of what a row belongs to (``decoder``, ``task``; ``unit``, ``prompt``;
    ``trial``: prompt and repeat; ``text``: the ids of the plain arm), and figures of it. Seconds
    that are not told are 0, as are counts of rounds.

    Parameters
    ----------
    rows : sequence of GenerationRow

    Attributes
    ----------
    table : Table
        All rows.
    decoders, tasks : list of str
        What the numbers stand for, in the order of the rows.
    texts : list of tuple of int
    trials : int
        How many there are.
    """

    def __init__(self, rows: Sequence[GenerationRow]) -> None:
        self.rows = list(rows)
        decoder, self.decoders = _numbered(row.decoder for row in rows)
        task, self.tasks = _numbered(row.task for row in rows)
        text, self.texts = _numbered(tuple(row.plain_tokens) for row in rows)
        trial, trials = _numbered((row.task, row.prompt_id, row.repeat) for row in rows)
        self.trials = len(trials)
        columns = {
            "decoder": decoder,
            "task": task,
            "text": text,
            "trial": trial,
            "unit": _numbered(map(unit, rows))[0],
            "prompt": _numbered((row.task, row.prompt_id) for row in rows)[0],
            **_judged(rows),
            **_timed(rows),
            **_counted(rows),
        }
        self.table = Table(columns, np.arange(len(rows)))

    @cached_property
    def repetitions(self) -> Floats:
        """Share of repeated 4-grams, by text."""
        return np.array([repetition(text) for text in self.texts], np.float64)

    @cached_property
    def rounds(self) -> Rounds:
        """Of the rows that are ``even``."""
        even = self.table.where(self.table["even"])
        rows = self.rows_of(even)
        return Rounds(
            np.repeat(even.numbers, even["rounds"]),
            np.fromiter(chain.from_iterable(row.drafted or () for row in rows), np.int64),
            np.fromiter(chain.from_iterable(row.accepted or () for row in rows), np.int64),
        )

    def of_decoder(self, decoder: str) -> Table:
        """Its rows; none where there is no such decoder."""
        number = self.decoders.index(decoder) if decoder in self.decoders else -1
        return self.table.where(self.table["decoder"] == number)

    def rows_of(self, table: Table) -> list[GenerationRow]:
        """The rows that a table was made of."""
        return [self.rows[number] for number in table.numbers.tolist()]


_kept: list[Columns] = []


def columns(rows: Sequence[GenerationRow]) -> Columns:
    """The columns of some rows. The last ones are kept: all figures of a record ask for the same.

    Rows that are the same objects are found to be equal without a look at what they hold.
    """
    if not _kept or _kept[0].rows != rows:
        _kept[:] = [Columns(rows)]
    return _kept[0]


def groups(
    found: Columns, table: Table, decoders: Sequence[str]
) -> Iterator[tuple[str, str, Table]]:
    """Decoder, task and their part of the table, task by task; then each decoder over all tasks.

    Tasks are those of the table, in the order of its rows.
    """
    numbers = {name: number for number, name in enumerate(found.decoders)}
    tasks = list(dict.fromkeys(table["task"].tolist()))
    known = [name for name in decoders if name in numbers]
    parts = {name: table.where(table["decoder"] == numbers[name]) for name in known}
    for task in tasks:
        for decoder, part in parts.items():
            if len(own := part.where(part["task"] == task)):
                yield decoder, found.tasks[task], own
    if len(tasks) > 1:
        yield from ((decoder, ALL_TASKS, part) for decoder, part in parts.items() if len(part))


def by_unit(table: Table, values: Floats) -> Floats:
    """One figure a prompt, or a batch of them, in the order of the rows.

    Parameters
    ----------
    values : ndarray [n], positive
        One a row of the table; a prompt has the geometric mean over its repeats.
    """
    _, first, place = np.unique(table["unit"], return_index=True, return_inverse=True)
    if len(first) == len(values):
        return values
    means = np.exp(np.bincount(place, np.log(values)) / np.bincount(place))
    return means[np.argsort(first)]


def ratios(table: Table) -> Floats:
    """Speedup of every prompt."""
    return by_unit(table, table["plain_cost"] / table["cost"])


def _numbered(values: Iterable[Hashable]) -> tuple[Ints, list[Any]]:
    """Numbers in the order of appearance, and what they stand for."""
    known: dict[Hashable, int] = {}
    numbers = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
    return numbers, list(known)


def _judged(rows: Sequence[GenerationRow]) -> dict[str, NDArray[Any]]:
    places = {status: place for place, status in enumerate(STATUSES)}
    return {
        "timeable": np.array(list(map(timeable, rows)), np.bool_),
        "verdict": np.array([places[verdict_of(row)] for row in rows], np.int64),
        "near_tie": np.array([bool(row.near_tie) for row in rows], np.bool_),
        "sampled": np.array([row.identical is None and not row.error for row in rows], np.bool_),
    }


def _timed(rows: Sequence[GenerationRow]) -> dict[str, NDArray[Any]]:
    """Times in seconds; of the plain arm first, then of the speculative one."""
    found: dict[str, NDArray[Any]] = {}
    found["plain_leads"] = np.array([row.first == "plain" for row in rows], np.bool_)
    for arm in ("plain_", ""):
        parts: list[dict[str, float]] = [getattr(row, f"{arm}parts") for row in rows]
        told = {
            "seconds": [getattr(row, f"{arm}seconds") for row in rows],
            "tokens": [len(getattr(row, f"{arm}tokens")) for row in rows],
            "first": [getattr(row, f"{arm}first_seconds") or 0.0 for row in rows],
            "parts": [sum(of.values()) for of in parts],  # all that the decoder tells
            **{f"{part}_part": [of.get(part, 0.0) for of in parts] for part in PARTS},
        }
        found |= {f"{arm}{name}": np.array(values, np.float64) for name, values in told.items()}
        tokens = found[f"{arm}tokens"]
        found[f"{arm}cost"] = found[f"{arm}seconds"] / np.where(tokens, tokens, np.nan)
    return found


def _counted(rows: Sequence[GenerationRow]) -> dict[str, NDArray[Any]]:
    counts = {
        "rounds": [len(row.drafted or ()) for row in rows],
        "drafted": [sum(row.drafted or ()) for row in rows],
        "accepted": [sum(row.accepted or ()) for row in rows],
        "calls": [row.counts.get("target_calls") or len(row.drafted or ()) for row in rows],
    }
    found: dict[str, NDArray[Any]] = {k: np.array(v, np.int64) for k, v in counts.items()}
    told = [len(row.accepted or ()) for row in rows]  # as many as rounds, if all is well
    found["even"] = (found["rounds"] > 0) & (found["rounds"] == np.array(told, np.int64))
    return found
