"""Where decoders stand: the records of their suites as one table, decoders by suites."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import msgspec

from harness.expectations import Expectations, known_failures
from harness.record import Record, VerdictRow
from harness.report.document import Cell, Notes, Section, Table
from harness.verdict import Status

KNOWN = "xfail"  # a failure that is expected, with its reason
# What a row came to, the worst first, and how a cell of the matrix says it.
LETTERS: Mapping[str, str] = {
    "FAIL": "F",
    KNOWN: "x",
    "ERROR": "E",
    "INCONCLUSIVE": "?",
    "UNSUPPORTED": "u",
    "PASS": "",
}
# From the output itself to what is told about it: the first finding of the worst kind is shown.
SUITES = (
    *("smoke", "contract", "arms", "greedy", "distribution", "exact_law", "sampling_params"),
    *("stopping", "cache", "batching", "randomness", "acceptance", "vocabulary", "properties"),
    *("logprobs", "streaming", "metrics", "speed_evidence", "robustness"),
)
TINY = "tiny pairs"
WORDS = 120  # characters of a finding in a table
LEGEND = (
    "a number alone counts PASS; F is FAIL, x a known failure (xfail), E ERROR, ? INCONCLUSIVE, "
    "u UNSUPPORTED; - has nothing that the decoder supports"
)


def outcome(row: VerdictRow) -> str:
    """A status, or ``xfail`` where it is an expected one."""
    status = row.verdict.status
    wrong = status not in (Status.PASS, Status.UNSUPPORTED)
    return KNOWN if wrong and row.expected_failure else status.value


@dataclass(frozen=True)
class Standing:
    """All that one run of the suites said of one decoder.

    Attributes
    ----------
    suites : dict of str to list of VerdictRow
        In the order of ``SUITES``.
    versions : dict of str to str
        As the decoder says, else of what the harness has installed.
    problems : list of str
        What is wrong with the record.
    found_by_it : int
        Known failures that were news to this run: the list that has them was written after it.
    """

    decoder: str
    pair: str
    profile: str
    options: str
    date: str
    command: str
    versions: dict[str, str]
    machine: str
    suites: dict[str, list[VerdictRow]]
    problems: list[str] = field(default_factory=list)
    found_by_it: int = 0

    @property
    def name(self) -> str:
        """The decoder, and on what it ran if that is not the usual."""
        extras = [f"on {self.pair}" if self.pair != TINY else "", self.options]
        return " ".join([self.decoder, *(extra for extra in extras if extra)])

    @property
    def rows(self) -> list[VerdictRow]:
        """All rows, in the order of the suites."""
        return [row for rows in self.suites.values() for row in rows]

    @property
    def worst(self) -> VerdictRow | None:
        """The first row of the worst kind that is a finding, None where there is none."""
        for kind in ("FAIL", KNOWN, "ERROR", "INCONCLUSIVE"):
            for row in self.rows:
                if outcome(row) == kind:
                    return row
        return None


def standings(records: Sequence[Record]) -> list[Standing]:
    """One for every decoder of every record, in their order."""
    return [_standing(record, name) for record in records for name in _decoders(record)]


def _decoders(record: Record) -> list[str]:
    seen = (row.decoder for row in record.verdicts if row.suite != "benchmark")
    return list(dict.fromkeys([*record.header.decoders, *seen]))


def _standing(record: Record, decoder: str) -> Standing:
    header, known = record.header, known_failures(decoder)
    suites: dict[str, list[VerdictRow]] = {}
    news = 0
    for row in record.verdicts:
        if row.decoder == decoder and row.suite != "benchmark":
            told = _explained(row, known)
            suites.setdefault(row.suite, []).append(told)
            news += told is not row
    versions: dict[str, str] = {}
    for rows in suites.values():
        for row in rows:
            versions |= row.decoder_versions
    ours = {k: v for k, v in header.versions.items() if k in ("torch", "transformers")}
    older = {key: value for key, value in header.options.items() if key != "profile"}
    options = header.options.get("decoder_options", older)  # which once stood alone
    machine = header.machine
    return Standing(
        decoder=decoder,
        pair=header.pair.name or TINY,
        profile=str(header.options.get("profile", "")),
        options=" ".join(f"{key}={value}" for key, value in options.items()),
        date=header.started[:10],
        command=header.command,
        versions=versions or ours,
        machine=", ".join(
            part
            for part in (
                machine.get("processor") or machine.get("architecture", ""),
                f"{machine['cores']} cores" if machine.get("cores") else "",
                machine.get("gpu", ""),
            )
            if part
        ),
        suites={name: suites[name] for name in in_order(suites)},
        problems=record.problems,
        found_by_it=news,
    )


def _explained(row: VerdictRow, known: Expectations) -> VerdictRow:
    """With the reason that has been found since the run, if none was known then."""
    wrong = row.verdict.status in (Status.FAIL, Status.ERROR)
    if row.expected_failure or not wrong:
        return row
    if not (reason := known.explanation(row.item, row.verdict)):
        return row
    return msgspec.structs.replace(row, expected_failure=reason)


def in_order(names: Iterable[str]) -> list[str]:
    """Suites in the order of ``SUITES``; those it does not know come last."""
    found = set(names)
    return [name for name in SUITES if name in found] + sorted(found - set(SUITES))


def counts(rows: Sequence[VerdictRow]) -> dict[str, int]:
    """How many rows came to what, the worst first; without zeros."""
    found = Counter(outcome(row) for row in rows)
    return {kind: found[kind] for kind in LETTERS if found[kind]}


def words(rows: Sequence[VerdictRow]) -> str:
    """The counts in words, PASS first."""
    found = counts(rows)
    ordered = [kind for kind in ("PASS", *LETTERS) if kind in found]
    return ", ".join(f"{found[kind]} {kind}" for kind in dict.fromkeys(ordered)) or "nothing ran"


def compact(rows: Sequence[VerdictRow]) -> str:
    """The counts as a cell of the matrix."""
    found = counts(rows)
    if set(found) <= {"UNSUPPORTED"}:
        return "-"
    ordered = dict.fromkeys(kind for kind in ("PASS", *LETTERS) if kind in found)
    return " ".join(f"{found[kind]}{LETTERS[kind]}" for kind in ordered)


def finding(row: VerdictRow | None) -> str:
    """A finding in words: a person's where there are any, else the verdict's own."""
    if row is None:
        return "none"
    told = row.expected_failure or row.verdict.message
    where = item_name(row.item)
    fault = "" if row.expected_failure else row.verdict.likely_fault
    return f"{where}: {told}" + (f" (likely fault: {fault})" if fault else "")


def item_name(item: str) -> str:
    """``greedy::identity[tiny]`` for ``suites/test_greedy.py::test_identity[tiny]``."""
    path, _, name = item.partition("::")
    return f"{PurePath(path).stem.removeprefix('test_')}::{name.removeprefix('test_')}"


def shortened(text: str, width: int = WORDS) -> str:
    """The first words of a text, on one line."""
    return textwrap.shorten(text, width, placeholder=" ...", break_on_hyphens=False)


def section(found: Sequence[Standing]) -> Section:
    """The standings as tables: a line a decoder, and decoders by suites."""
    suites = in_order(suite for standing in found for suite in standing.suites)
    lines: list[list[Cell]] = []
    matrix: list[list[Cell]] = []
    for standing in found:
        versions = ", ".join(f"{name} {version}" for name, version in standing.versions.items())
        worst = shortened(finding(standing.worst))
        verdicts = words(standing.rows) + (" (cut short)" if standing.problems else "")
        lines.append([standing.name, standing.profile, verdicts, worst, versions, standing.date])
        matrix.append([standing.name, *(compact(standing.suites.get(s, ())) for s in suites)])
    facts = {
        "decoders": str(len(found)),
        "machine": "; ".join(dict.fromkeys(s.machine for s in found if s.machine)),
    }
    columns = ["decoder", "profile", "verdicts", "worst finding", "versions", "date"]
    return Section(
        "Conformance",
        [(name, value) for name, value in facts.items() if value],
        [
            Table("Verdicts of the suites", columns, lines),
            Table("By suite", ["decoder", *suites], matrix),
        ],
        [
            Notes("How to read a cell", [LEGEND]),
            *_news(found),
            Notes("Commands", list(dict.fromkeys(s.command for s in found)), verbatim=True),
            *(
                Notes(f"Problems of the record of {standing.name}", standing.problems)
                for standing in found
                if standing.problems
            ),
        ],
        figures={"standings": [line for standing in found for line in _figures(standing)]},
    )


def _news(found: Sequence[Standing]) -> list[Notes]:
    """Whose known failures were none yet when they were run: their commands ended in red."""
    told = [f"{s.name}: {s.found_by_it}" for s in found if s.found_by_it]
    title = "Known failures that these runs found, and that were listed after them"
    return [Notes(title, told)] if told else []


def _figures(standing: Standing) -> list[dict[str, object]]:
    """The counts of every suite, for programs."""
    return [
        {
            "decoder": standing.name,
            "profile": standing.profile,
            "date": standing.date,
            "suite": suite,
            **{kind: counts(rows).get(kind, 0) for kind in LETTERS},
        }
        for suite, rows in standing.suites.items()
    ]
