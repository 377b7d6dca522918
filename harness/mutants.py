"""``python -m harness.mutants``: the kill matrix, known-wrong decoders by checks.

Every mutant of ``reference_impl.mutants`` is run through the suites' own checks: first those that
must kill it, then all others until one does (or all of them, with ``--full``). Every control of
``reference_impl.controls`` must pass all of them.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate
from tqdm import tqdm

from harness import executors, matrix, record
from harness.checks.budget import PROFILES
from harness.command_line import BadInput, Parser, refuse
from harness.diagnosis import diagnose
from harness.items import Item, items
from harness.matrix import CONTROLS, MUTANTS, Cell, Row
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.controls import CONTROLS as RIGHT
from reference_impl.mutants import MUTANTS as WRONG


class _Document(msgspec.Struct):
    """The JSON file, as far as it is read again; it also says where the cells came from."""

    cells: list[Cell]


EXACT_LAW = "exact_law.tables"
SHORT = 80  # characters of a message that the JSON file keeps
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
        executors.check_options(options)
        if options.resume and not options.json:
            raise ValueError("--resume needs --json FILE, whose rows it keeps")
        known_checks = {name for item in known for name in (item.suite, item.check, str(item))}
        checks = _known(options.checks, known_checks, "check")
        names = _known(options.names, {*WRONG, *RIGHT}, "mutant or control")
        for option in ("json", "markdown"):
            if path := getattr(options, option):
                record.check_writable(f"--{option}", Path(path))
    except ValueError as error:
        return refuse(error)
    chosen = [item for item in known if not checks or matrix.matches(item, checks)]
    rows = [_row(name, chosen, options) for name in names or [*WRONG, *RIGHT]]
    done = _read_json(options.json) if options.resume else {}
    missing = [row for row in rows if not _whole(row, done.get(row.decoder, []))]
    try:
        with executors.executor(options) as pool:
            found = matrix.run_all(missing, pool)
            for row in tqdm(found, total=len(missing), unit="decoder", disable=None):
                done[row[0].decoder] = row
                if options.json:
                    _write_json(options.json, done)
    except BadInput as error:
        return refuse(error)
    cells = [done[row.decoder] for row in rows]
    print(render(cells, "simple"))
    if options.markdown:
        Path(options.markdown).write_text(render(cells, "github") + "\n")
    return int(any(wrong(row) for row in cells))


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m harness.mutants", __doc__)
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
    executors.add_options(parser, "decoders")
    add("--json", metavar="FILE", help="write all cells, after each decoder")
    add("--resume", action="store_true", help="do not run again what is in the JSON file")
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
    # A page of the algorithm takes one request at a time, without a cache: what kills it is enough.
    enough = not options.full or EXACT_LAW in WRONG[name].killed_by
    return Row(f"{MUTANTS}:{name}", order, options.profile, until_killed=enough)


def wrong(row: Sequence[Cell]) -> str:
    """What is wrong with the suites, by this row: a survivor, a right decoder killed, a crash."""
    module, _, name = row[0].decoder.partition(":")
    killers = [cell for cell in row if cell.kills]
    for cell in row:
        if cell.message.startswith(matrix.RAISED):
            return f"{name}, {cell.item}: {cell.message}"
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
        named_right(rows),
        *([problem for row in rows if (problem := wrong(row))] or ["nothing survives"]),
    ]
    return "\n".join(lines)


def named_right(rows: Sequence[Sequence[Cell]]) -> str:
    """How often all failing checks together name the mutant's own class of fault."""
    mutants = [row for row in rows if row[0].decoder.startswith(f"{MUTANTS}:")]
    right = sum(diagnosed(row) is WRONG[_name(row)].kind for row in mutants)
    return f"class of fault named by all failing checks together: right for {right}/{len(mutants)}"


def diagnosed(row: Sequence[Cell]) -> FaultClass | None:
    """What a run of the suites says at its end, in whose order the cells are put."""
    order = _order()
    verdicts = [
        Verdict(check=cell.check, status=cell.status, message="", fault_class=cell.named)
        for cell in sorted(row, key=lambda cell: order.get(cell.item, 0))
    ]
    return diagnose(verdicts)[0]


@functools.cache
def _order() -> dict[str, int]:
    """Place of every item among those of a run; a smoke run's are among them."""
    return {str(item): number for number, item in enumerate(items("ci"))}


def _name(row: Sequence[Cell]) -> str:
    return row[0].decoder.partition(":")[2]


def _whole(row: Row, cells: Sequence[Cell]) -> bool:
    """Whether these are all cells of a row."""
    killed = row.until_killed and any(cell.kills for cell in cells)
    return bool(cells) and (killed or {cell.item for cell in cells} >= set(row.items))


def _read_json(path: str) -> dict[str, list[Cell]]:
    """Rows of an earlier run, by decoder; none where there was no such run."""
    text = Path(path).read_bytes() if Path(path).exists() else b""
    found: dict[str, list[Cell]] = {}
    for cell in msgspec.json.decode(text, type=_Document).cells if text else []:
        found.setdefault(cell.decoder, []).append(cell)
    return found


def _write_json(path: str, rows: Mapping[str, Sequence[Cell]]) -> None:
    """All rows so far, a line a cell, or what was there before: never a part of a file."""
    cells = [
        msgspec.json.encode(msgspec.structs.replace(cell, message=cell.message[:SHORT]))
        for row in rows.values()
        for cell in row
    ]
    head = msgspec.json.encode(record.provenance())[:-1]
    fresh = Path(f"{path}.new")
    fresh.write_bytes(head + b',"cells":[\n' + b",\n".join(cells) + b"\n]}\n")
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
