"""A run of the suites for GitHub Actions: a page for the step's summary, and marks in the log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.record import VerdictRow
from harness.report import formats
from harness.report.document import Cell, Section, Table
from harness.report.standings import (
    KNOWN,
    LETTERS,
    Standing,
    counts,
    finding,
    item_name,
    outcome,
    words,
)

MARKED = 10  # annotations of a step that GitHub shows
DETAILED = 20  # findings with their reproductions; a summary may have 1 MiB
REPRO = 8_000  # characters of one


def summary(standing: Standing, surprises: Sequence[str] = (), stale: Sequence[str] = ()) -> str:
    """Markdown: counts by suite, then every finding with its reproduction folded away.

    Parameters
    ----------
    surprises : sequence of str
        Items that passed, and were expected to fail.
    stale : sequence of str
        Expectations that match no item.
    """
    kinds = [kind for kind in ("PASS", *LETTERS) if kind in counts(standing.rows)]
    columns = list(dict.fromkeys(kinds))
    lines: list[list[Cell]] = [
        [suite, *(str(counts(rows).get(kind, "")) for kind in columns)]
        for suite, rows in standing.suites.items()
    ]
    facts = {
        "verdicts": words(standing.rows),
        "ran": f"profile {standing.profile}, {standing.pair}, {standing.date}",
        "versions": ", ".join(f"{k} {v}" for k, v in standing.versions.items()),
        "command": standing.command,
    }
    head = Section(
        f"Conformance of {standing.name}",
        [(name, value) for name, value in facts.items() if value],
        [Table("By suite", ["suite", *columns], lines)],
    )
    blocks = [formats.markdown([head])]
    for kind in ("FAIL", "ERROR", "INCONCLUSIVE", KNOWN):
        rows = [row for row in standing.rows if outcome(row) == kind]
        if rows:
            blocks.append(f"## {kind}")
            blocks += [_finding(row) for row in rows[:DETAILED]]
        if len(rows) > DETAILED:
            blocks.append(f"{len(rows) - DETAILED} more in the record.")
    for title, items in (
        ("Expected to fail, and passed: take them out of the xfails file", surprises),
        ("Entries that match no item of this run", stale),
    ):
        if items:
            blocks.append("\n".join([f"## {title}", "", *(f"- `{_code(item)}`" for item in items)]))
    return "\n\n".join(blocks) + "\n"


def marks(standing: Standing, surprises: Sequence[str] = ()) -> list[str]:
    """Workflow commands that mark what went wrong, the worst first."""
    wrong = [
        row
        for kind in ("FAIL", "ERROR", "INCONCLUSIVE")
        for row in standing.rows
        if outcome(row) == kind
    ]
    lines = [
        mark("error", f"{outcome(row)} {item_name(row.item)}", finding(row).partition(": ")[2])
        for row in wrong
    ]
    lines += [
        mark(
            "error",
            f"passes now: {item_name(item)}",
            "it is expected to fail: take it out of the xfails file",
        )
        for item in surprises
    ]
    return lines[:MARKED]


def mark(kind: str, title: str, message: str) -> str:
    """A workflow command: an ``error`` or a ``warning`` in the log."""
    return f"::{kind} title={_property(title)}::{_data(message)}"


def publish(text: str) -> None:
    """Add to the summary of the step; print where there is none."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as page:
            page.write(text + "\n")
    else:
        print(text)


def _finding(row: VerdictRow) -> str:
    """One finding; its reproduction in a fence longer than any within."""
    lines = [f"**{formats.escaped(item_name(row.item))}**: {formats.escaped(row.verdict.message)}"]
    if row.expected_failure:
        lines.append(f"- known: {formats.escaped(row.expected_failure)}")
    if row.verdict.likely_fault:
        lines.append(f"- likely fault: {formats.escaped(row.verdict.likely_fault)}")
    if row.verdict.repro:
        code = formats.fenced(row.verdict.repro[:REPRO], "python")
        lines.append(f"\n<details><summary>reproduce</summary>\n\n{code}\n\n</details>")
    return "\n".join(lines)


def _code(text: str) -> str:
    """Text between single backticks."""
    return formats.one_line(text).replace("`", "'")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
