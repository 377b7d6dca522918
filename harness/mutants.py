"""``python -m harness.mutants``: the kill matrix, known-wrong decoders by checks.

Every mutant of ``reference_impl.mutants`` is run through the suites' own checks: first those that
must kill it, then all others until one does (or all of them, with ``--full``). Every control of
``reference_impl.controls`` must pass all of them.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate
from tqdm import tqdm

from harness import matrix, record
from harness.checks.budget import PROFILES
from harness.items import Item, items
from harness.matrix import CONTROLS, MUTANTS, Cell, Row
from harness.verdict import Status
from reference_impl.controls import CONTROLS as RIGHT
from reference_impl.mutants import MUTANTS as WRONG

SYMBOLS = {
    Status.FAIL: "X",
    Status.ERROR: "E",
    Status.INCONCLUSIVE: "?",
    Status.UNSUPPORTED: "-",
    Status.PASS: ".",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix and print it; 1 if a mutant survives or a control is killed."""
    options = _parser().parse_args(arguments)
    known = items(options.profile)
    try:
        known_checks = {name for item in known for name in (item.suite, item.check, str(item))}
        checks = _known(options.checks, known_checks, "check")
        names = _known(options.names, {*WRONG, *RIGHT}, "mutant or control")
        for option in ("json", "markdown"):
            if path := getattr(options, option):
                record.check_writable(f"--{option}", Path(path))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    chosen = [item for item in known if not checks or matrix.matches(item, checks)]
    rows = [_row(name, chosen, options) for name in names or [*WRONG, *RIGHT]]
    found = matrix.run_all(rows, options.jobs)
    cells = list(tqdm(found, total=len(rows), unit="decoder", disable=None))
    print(render(cells, "simple"))
    if options.json:
        _write_json(options.json, cells)
    if options.markdown:
        Path(options.markdown).write_text(render(cells, "github") + "\n")
    return int(any(wrong(row) for row in cells))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.mutants", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="mutants or controls; default: all of them")
    add(
        "--checks",
        nargs="+",
        default=[],
        metavar="CHECK",
        help="only these: suite, suite.test or suite.test[pair]",
    )
    add("--profile", default="smoke", choices=PROFILES, help="how much each check spends")
    add("--full", action="store_true", help="every check on every mutant, not until it is killed")
    add("--jobs", type=int, default=1, metavar="N", help="decoders at a time")
    add("--json", metavar="FILE", help="write all cells")
    add("--markdown", metavar="FILE", help="write the table")
    return parser


def _known(asked: Sequence[str], known: Iterable[str], kind: str) -> Sequence[str]:
    """The names, or ValueError with the near ones."""
    known = sorted(known)
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:5]
            raise ValueError(f"unknown {kind} {name!r}: near are {', '.join(near)}")
    return asked


def _row(name: str, chosen: Sequence[Item], options: argparse.Namespace) -> Row:
    """Of a mutant the checks that must kill it come first; a control takes all of them."""
    if name in RIGHT:
        return Row(f"{CONTROLS}:{name}", [str(item) for item in chosen], options.profile)
    must = [i for pattern in WRONG[name].killed_by for i in chosen if matrix.matches(i, [pattern])]
    order = list(dict.fromkeys(str(item) for item in [*must, *chosen]))
    return Row(f"{MUTANTS}:{name}", order, options.profile, until_killed=not options.full)


def wrong(row: Sequence[Cell]) -> str:
    """What is wrong with the suites, by this row: a survivor, or a right decoder killed."""
    module, _, name = row[0].decoder.partition(":")
    killers = [cell for cell in row if cell.kills]
    if module == MUTANTS and not killers:
        return f"mutant {name} survives"
    if module == CONTROLS and killers:
        return f"control {name} is killed by {killers[0].item}: {killers[0].message}"
    return ""


def render(rows: Sequence[Sequence[Cell]], style: str) -> str:
    """The matrix as a table, and what is wrong below it."""
    checks = list(dict.fromkeys(cell.check for row in rows for cell in row))
    table = []
    for row in rows:
        first = next((cell for cell in row if cell.kills), None)
        marks = []
        for check in checks:
            statuses = [cell.status for cell in row if cell.check == check]
            marks.append(next((SYMBOLS[s] for s in SYMBOLS if s in statuses), ""))
        time = sum(c.seconds for c in row[: row.index(first) + 1]) if first else None
        table.append(
            [
                row[0].decoder.partition(":")[2],
                first.item if first else "",
                first.named.value if first and first.named else "",
                time,
                *marks,
            ]
        )
    numbers = [str(i) for i in range(1, len(checks) + 1)]
    headers = ["decoder", "killed by", "class named", "seconds", *numbers]
    legend = [f"{number} {check}" for number, check in zip(numbers, checks, strict=True)]
    symbols = "X FAIL, E ERROR, ? INCONCLUSIVE, - UNSUPPORTED, . PASS, blank: not run"
    lines = [
        tabulate(table, headers, tablefmt=style, floatfmt=".1f"),
        "",
        symbols,
        *legend,
        "",
        *([problem for row in rows if (problem := wrong(row))] or ["nothing survives"]),
    ]
    return "\n".join(lines)


def _write_json(path: str, rows: Sequence[Sequence[Cell]]) -> None:
    document = {
        **msgspec.to_builtins(record.provenance()),
        "cells": msgspec.to_builtins([cell for row in rows for cell in row]),
    }
    Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))


if __name__ == "__main__":
    sys.exit(main())
