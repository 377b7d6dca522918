"""``python -m harness.fuzz``: readers of strangers' bytes, fed with bytes that are nearly right.

Whatever they are, a reader may answer, or raise what its documentation says. Anything else is a
finding, and so is an example that takes longer than a reader may.
"""

from __future__ import annotations

import math
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from tabulate import tabulate

from harness import record
from harness.command_line import Parser, refuse
from harness.fuzz.target import Target
from harness.fuzz.targets import targets

EXAMPLES = 2000
SLOW = 10  # seconds of one example that is called a hang
SHOWN = 300  # characters of an example


@dataclass
class Outcome:
    """What came of one target.

    Attributes
    ----------
    findings : dict of str to str
        By error and place, the shortest example that led there, as Python writes it.
    """

    target: str
    examples: int = 0
    seconds: float = 0.0
    findings: dict[str, str] = field(default_factory=dict)


class Hang(BaseException):
    """An example that takes too long; no reader may take it for an error of its own."""


def fuzz(target: Target, examples: int, seed: int) -> Outcome:
    """Feed a target with so many examples."""
    outcome = Outcome(target.name)
    started = time.perf_counter()

    @seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.examples)
    def once(example: Any) -> None:
        outcome.examples += 1
        try:
            with _in_time():
                target.read(example)
        except (Exception, Hang) as error:  # one finding does not end the search for others
            words = repr(example)
            at = _place(error)
            if at not in outcome.findings or len(words) < len(outcome.findings[at]):
                outcome.findings[at] = words

    once()
    outcome.seconds = round(time.perf_counter() - started, 1)
    return outcome


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise ``Hang`` in what takes too long."""

    def ring(*_: object) -> None:
        raise Hang(f"no end after {SLOW} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SLOW)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(error: BaseException) -> str:
    """The error and where in this project it was raised, or let through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "harness" in Path(frame.filename).parts]
    last = (own or frames)[-1]
    words = " ".join(str(error).split())[:SHOWN]
    return f"{type(error).__name__} at {Path(last.filename).name}, {last.name}: {words}"


def report(outcomes: Sequence[Outcome], seed: int) -> str:
    """The table, then every finding with the example that shows it."""
    rows = [[o.target, f"{o.examples:,}", f"{o.seconds:g}", len(o.findings)] for o in outcomes]
    table = tabulate(rows, ["target", "examples", "seconds", "findings"], disable_numparse=True)
    lines = [table, f"seed {seed}"]
    for outcome in outcomes:
        for at, example in outcome.findings.items():
            shown = example if len(example) <= SHOWN else f"{example[:SHOWN]}..."
            lines.append(f"{outcome.target}: {at}\n  {shown}")
    if not any(outcome.findings for outcome in outcomes):
        lines.append("nothing found: answers, and the errors that are documented")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print, and say by the exit code whether anything was found."""
    parser = Parser("python -m harness.fuzz", __doc__)
    parser.add_argument(
        "--examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help="in all, shared alike among the targets (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="targets with it in their name"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON")
    options = parser.parse_args(arguments)
    chosen = [t for t in targets() if not options.only or any(w in t.name for w in options.only)]
    if not chosen:
        return refuse(f"no target has {' or '.join(options.only)} in its name")
    if options.examples < len(chosen):
        return refuse(f"--examples is {options.examples}: at least one a target, {len(chosen)}")
    if options.json:
        try:
            record.check_writable("--json", options.json)
        except ValueError as error:
            return refuse(error)
    share = math.ceil(options.examples / len(chosen))
    outcomes = [fuzz(target, share, options.seed) for target in chosen]
    print(report(outcomes, options.seed))
    if options.json:
        told = {"seed": options.seed, "targets": [asdict(outcome) for outcome in outcomes]}
        record.write_json(options.json, told)
    return 1 if any(outcome.findings for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
