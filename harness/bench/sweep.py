"""``python -m harness.bench.sweep AXIS VALUES...``: what speculation buys as one setting changes.

A paired measurement for every value, with the options of ``python -m harness.report``. The values
take turns row by row, so that a machine that slows down for a while slows all of them down alike.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from harness.bench.tasks import DRAFTS
from harness.command_line import BadInput, Parser, refuse
from harness.record import RecordError, read
from harness.report import __main__ as report
from harness.report import formats, sweeps
from harness.report.options import Options, parse
from harness.report.outcome import exit_status

AXES: Mapping[str, str] = {
    "draft_tokens": "K",
    "temperature": "0 is greedy",
    "batch_size": "requests at once; a decoder that cannot is UNSUPPORTED above 1",
    "max_new_tokens": "of every output",
    "prompt_tokens": "of every prompt, cut or with others of its task in front",
    "pair": f"the draft: {', '.join(DRAFTS)}; or a pair's name",
    "dtype": "of both models",
}
FORMATS = "terminal,markdown,html"
EPILOG = (
    "axes:\n"
    + "\n".join(f"  {name:<15} {words}" for name, words in AXES.items())
    + """

Options of harness.report stand behind the values. Each value has its record in OUT/AXIS-VALUE; the
table and the page of all of them are OUT/report.*, also by harness.report --from.

examples:
  python -m harness.bench.sweep draft_tokens 1 2 4 8 --decoder reference
  python -m harness.bench.sweep batch_size 1 4 16 --pair tiny --profile full
  python -m harness.bench.sweep pair right mismatched identical --pair tiny
"""
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every value; returns the exit status of ``harness.report`` on all records."""
    parser = Parser("python -m harness.bench.sweep", __doc__, epilog=EPILOG)
    parser.add_argument("axis", choices=AXES, metavar="AXIS")
    parser.add_argument("values", nargs="+", metavar="VALUE")
    parser.add_argument("--out", type=Path, metavar="DIR", help="(default: reports/sweeps/AXIS)")
    parser.add_argument("--format", default=FORMATS, metavar="LIST", help="(default: %(default)s)")
    given, rest = parser.parse_known_args(arguments)
    out = given.out or Path("reports") / "sweeps" / given.axis
    try:
        settings = options_of(given.axis, given.values, [*rest, "--format", given.format], out)
        begun = interleave(_running(given.axis, settings), next(iter(settings.values())).seed)
        return _deliver([_record(settings[value]) for value in begun], given.format, out)
    except (BadInput, RecordError) as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return 3


def options_of(
    axis: str, values: Sequence[str], arguments: Sequence[str], out: Path
) -> dict[str, Options]:
    """What to measure for every value, in the given order.

    Raises
    ------
    BadInput
        If a value makes no sense or comes twice, or the arguments set what the sweep varies.
    """
    found: dict[str, Options] = {}
    for value in values:
        if value in found:
            raise BadInput(f"{axis} {value} is given twice: leave one of them out")
        name = "draft_choice" if axis == "pair" and value in DRAFTS else axis
        option = f"--{name.replace('_', '-')}"
        if any(word.split("=")[0] == option for word in arguments):
            raise BadInput(f"{option} is what this sweep varies: leave it out")
        options = parse([*arguments, option, value])
        if options.records or options.conformance or options.advise:
            raise BadInput("a sweep measures: render its records with python -m harness.report")
        found[value] = replace(options, out=out / f"{axis}-{value.replace('/', '-')}")
    return found


def _running(axis: str, settings: Mapping[str, Options]) -> dict[str, Iterator[int]]:
    from harness.report.loaded import Models  # imports torch: --help does without
    from harness.report.run import steps

    models = Models()
    return {
        value: steps(options, models, marks={sweeps.MARK: {"axis": axis, "value": value}})
        for value, options in settings.items()
    }


def interleave(running: Mapping[str, Iterator[int]], seed: int) -> list[str]:
    """Run measurements in turns: next is one of those of which the smallest share is done.

    Parameters
    ----------
    running : mapping of str to iterator of int
        Each yields how many rows it will have, once before the first row and after each.

    Returns
    -------
    list of str
        Those that began: all of them, but where an interruption ends the run.
    """
    generator = random.Random(seed)
    totals = {name: next(steps) for name, steps in running.items()}  # all are ready, or none runs
    done = dict.fromkeys(running, 0)
    left, begun = list(running), set()
    try:
        with tqdm(total=sum(totals.values()), desc="measuring", unit="pair") as progress:
            while left:
                name = min(left, key=lambda n: (done[n] / max(1, totals[n]), generator.random()))
                begun.add(name)
                if next(running[name], None) is not None:
                    done[name] += 1
                    progress.update()
                    continue
                left.remove(name)
                if done[name] < totals[name]:  # it was interrupted, and said so
                    break
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
    return [name for name in running if name in begun]


def _record(options: Options) -> Path:
    from harness.report.run import RECORD

    assert options.out
    return options.out / RECORD


def _deliver(paths: Sequence[Path], wanted: str, out: Path) -> int:
    """Print what the sweep says, and write the reports with all that its records say."""
    records = [read(path) for path in paths]
    names = [name.strip() for name in wanted.split(",")]
    if "terminal" in names:
        print(formats.terminal(sweeps.sections(records)))
    if files := [name for name in names if name != "terminal"]:
        report.main(["--from", *map(str, paths), "--out", str(out), "--format", ",".join(files)])
    return exit_status(records)


if __name__ == "__main__":
    sys.exit(main())
