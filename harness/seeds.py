"""``python -m harness.seeds``: right decoders through the suites, seed after seed.

How often is a right decoder called wrong? Every seed draws other prompts and other sampled
outputs. Complete rows are appended to ``--out``; those that are there already are not run again.
Every start leaves a line before its rows that says command, date, machine and versions.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate
from tqdm import tqdm

from harness import executors, matrix, record
from harness.adapters import find_factory
from harness.checks.budget import ALPHA, PROFILES
from harness.command_line import BadInput, Parser, refuse, require_positive
from harness.items import items
from harness.matrix import Row
from harness.verdict import Status

_HEADER = b'{"header":'
FIRST = 1_000_000  # far from the seeds that anything else starts at


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All items of a profile on one decoder with one seed.

    Attributes
    ----------
    counts : dict of str to int
        By status.
    alarms : list of str
        Items that did not pass, and why; UNSUPPORTED is none.
    """

    decoder: str
    profile: str
    seed: int
    seconds: float
    counts: dict[str, int]
    alarms: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that are missing and print all; 1 if there was an alarm."""
    options = _parser().parse_args(arguments)
    try:
        executors.check_options(options)
        require_positive(options, "seeds")
        decoders = options.decoder or ["reference"]
        for name in decoders:
            find_factory(name)
        record.check_writable("--out", options.out)
        runs = _whole(options.out) if options.out.exists() else []
    except ValueError as error:
        return refuse(error)
    names = [str(item) for item in items(options.profile)]
    done = {(run.decoder, run.profile, run.seed) for run in runs}
    rows = [
        Row(decoder, names, options.profile, seed=seed)
        for seed in range(FIRST, FIRST + options.seeds)
        for decoder in decoders
        if (decoder, options.profile, seed) not in done
    ]
    try:
        # A row is one write: there, or not at all.
        with executors.executor(options) as pool, options.out.open("ab", buffering=0) as file:
            if rows:
                file.write(msgspec.json.encode({"header": record.provenance()}) + b"\n")
            cells = matrix.run_all(rows, pool)
            for row, found in zip(rows, tqdm(cells, total=len(rows), disable=None), strict=True):
                runs.append(_run(row, found))
                file.write(msgspec.json.encode(runs[-1]) + b"\n")
    except BadInput as error:
        return refuse(error)
    print(render(runs))
    return int(any(run.alarms for run in runs))


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m harness.seeds", __doc__)
    add = parser.add_argument
    add("--decoder", action="append", metavar="NAME", help="repeatable; default: reference")
    add("--seeds", type=int, default=1000, metavar="N")
    add("--profile", default="smoke", choices=PROFILES)
    executors.add_options(parser, "runs")
    add("--out", type=Path, default=Path("reports/seeds/smoke.jsonl"), metavar="FILE")
    return parser


def _run(row: Row, cells: Sequence[matrix.Cell]) -> Run:
    assert row.seed is not None
    fine = (Status.PASS, Status.UNSUPPORTED)
    return Run(
        decoder=row.decoder,
        profile=row.profile,
        seed=row.seed,
        seconds=round(sum(cell.seconds for cell in cells), 1),
        counts=dict(Counter(cell.status.value for cell in cells)),
        alarms=[
            f"{cell.status.value} {cell.item}: {cell.message}"
            for cell in cells
            if cell.status not in fine
        ],
    )


def read(path: Path) -> list[Run]:
    """Runs that are in a file; ValueError if it has anything else."""
    return _runs(path, path.read_bytes())


def _runs(path: Path, data: bytes) -> list[Run]:
    rows = [line for line in data.splitlines() if not line.startswith(_HEADER)]
    try:
        return [msgspec.json.decode(line, type=Run) for line in rows]
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} has other rows, give another --out: {error}") from None


def _whole(path: Path) -> list[Run]:
    """The same; what was being written when an earlier run was ended is cut off."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    runs = _runs(path, data[:whole])
    if len(data) > whole:
        if not whole:
            _runs(path, data)  # no whole line says that the file is ours
        print(f"note: the last line of {path} is torn, and is dropped", file=sys.stderr)
        os.truncate(path, whole)
    return runs


def render(runs: Sequence[Run]) -> str:
    """A line a decoder, and every alarm."""
    table = []
    for decoder, profile in dict.fromkeys((run.decoder, run.profile) for run in runs):
        own = [run for run in runs if (run.decoder, run.profile) == (decoder, profile)]
        counts: Counter[str] = Counter()
        for run in own:
            counts.update(run.counts)
        alarmed = sum(bool(run.alarms) for run in own)
        table.append([decoder, profile, len(own), *(counts[s.value] for s in Status), alarmed])
    headers = ["decoder", "profile", "seeds", *(s.value for s in Status), "seeds with an alarm"]
    alarms = [f"{run.decoder}, seed {run.seed}: {alarm}" for run in runs for alarm in run.alarms]
    allowed = f"alpha of a run's statistical tests: {ALPHA}"
    return "\n".join([tabulate(table, headers), "", allowed, *alarms])


if __name__ == "__main__":
    sys.exit(main())
