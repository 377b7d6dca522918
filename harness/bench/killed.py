"""``python -m harness.bench.killed``: do records survive a run that is killed?

Small runs, of the report and of the suites in turns, are ended by SIGKILL at a random time between
their start and their usual end, and gone on with by ``--resume``. What is in the record then must
be what a run that nobody touched writes: no row lost, none doubled, the same verdicts, a footer.
Exit status 1 if not. Runs are forked from a process that has imported all, so that one takes about
a second.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tabulate import tabulate
from tqdm import tqdm

from harness import record
from harness.command_line import Parser, refuse
from harness.record import Record, RecordError

SEED = 20261129
ITEMS = ("contract", "exact_law", "robustness", "smoke", "vocabulary")
PLACES = (
    "before the first row",
    "between rows",
    "in the middle of a line",
    "after the end",
)
RECORD = "record.jsonl"
TIMED = 3  # whole runs of each kind
_IMPORTED = (
    "harness.adapters.reference",
    "harness.checks.exact_law",
    "harness.pytest_plugin",
    "harness.pytest_recorder",
    "harness.report.__main__",
    "harness.report.run",
    "hypothesis.strategies",
    "reference_impl.mutants",
    "xdist.plugin",
)


def _report(out: Path, resume: bool) -> int:
    """Two prompts of each of two tasks by two decoders, sampled: the rows, then the verdicts."""
    from harness.report.__main__ import main

    words = ["--pair", "tiny", "--tasks", "chat,code", "--prompts", "2", "--max-new-tokens", "8"]
    words += ["--temperature", "1", "--decoder", "reference", "--decoder", "reference-ngram"]
    words += ["--out", str(out), "--format", "terminal"]
    return main([*words, *(["--resume"] if resume else [])])


def _suites(out: Path, resume: bool) -> int:
    """A few items on a decoder that fails some of them."""
    import pytest

    import suites

    folder = Path(next(iter(suites.__path__)))
    os.chdir(folder.parent)
    words = [str(folder / f"test_{name}.py") for name in ITEMS]
    words += ["--pair", "micro", "--decoder", "reference_impl.mutants:crashes_on_nonsense"]
    words += ["-p", "harness.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["--results", str(out / RECORD)]
    return int(pytest.main([*words, *(["--resume"] if resume else [])]))


RUNS: Mapping[str, Callable[[Path, bool], int]] = {"report": _report, "suites": _suites}


@dataclass(frozen=True)
class Kill:
    """One run that was killed and gone on with.

    Attributes
    ----------
    run : str
        Of ``RUNS``.
    seconds : float
        From the start of the process to the kill.
    place : str
        Of ``PLACES``: where the record then was.
    lost, doubled, changed : int
        Rows.
    problem : str
        What else is wrong; empty if nothing is.
    """

    run: str
    seconds: float
    place: str
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    problem: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.changed or self.problem)


@dataclass(frozen=True)
class Whole:
    """What a run that nobody touched gives, and how long it takes."""

    status: int
    rows: Mapping[tuple[object, ...], tuple[object, ...]]
    seconds: float


class Runner:
    """Starts runs, each in a process of its own, from one that has imported all they need."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_IMPORTED))

    def out(self, name: str) -> Path:
        """A new place for a record."""
        path = self._directory / name
        path.mkdir()
        return path

    def run(self, kind: str, out: Path, resume: bool, at_most: float | None = None) -> int | None:
        """The exit status; None if it was killed, after ``at_most`` seconds."""
        process = self._context.Process(target=_child, args=(kind, out, resume))
        process.start()
        process.join(at_most)
        if process.exitcode is None:
            process.kill()
            process.join()
        return None if process.exitcode is None or process.exitcode < 0 else process.exitcode


def _child(kind: str, out: Path, resume: bool) -> None:
    log = os.open(out / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a killed process leaves behind
    sys.exit(RUNS[kind](out, resume))


def told(found: Record) -> Iterable[tuple[tuple[object, ...], tuple[object, ...]]]:
    """Of every row what it is about, and what it says of it that is no time."""
    for row in found.verdicts:
        verdict = row.verdict
        said = verdict.status, verdict.message, verdict.fault_class, row.expected_failure
        yield (row.decoder, row.item), said
    for made in found.generations:
        tokens = tuple(made.tokens), tuple(made.plain_tokens)
        about = made.decoder, made.task, made.prompt_id, made.repeat
        yield about, (*tokens, made.finish_reason, made.identical, made.fault, made.error)


def place(data: bytes) -> str:
    """Where a run was killed, by the record that it left."""
    *lines, rest = data.split(b"\n")
    if rest:
        return PLACES[2]
    if len(lines) < 2:  # the header, or less
        return PLACES[0]
    return PLACES[3] if b'"kind":"footer"' in lines[-1] else PLACES[1]


def compared(kill: Kill, whole: Whole, before: bytes, path: Path, status: int | None) -> Kill:
    """What the resumed record has too little, too often, or otherwise than the whole run."""
    try:
        found = record.read(path)
    except RecordError as error:
        return Kill(kill.run, kill.seconds, kill.place, lost=len(whole.rows), problem=str(error))
    rows = list(told(found))
    counts = Counter(about for about, _ in rows)
    kept = [line for line in before.split(b"\n")[1:-1] if b'"kind":"footer"' not in line]
    gone = sum(line not in path.read_bytes().split(b"\n") for line in kept)
    problems = list(found.problems)
    if status != whole.status:
        problems.append(f"exit status {status}, it should be {whole.status}")
    return Kill(
        kill.run,
        kill.seconds,
        kill.place,
        lost=max(gone, sum(about not in counts for about in whole.rows)),
        doubled=sum(count - 1 for count in counts.values()),
        changed=sum(whole.rows.get(about) != said for about, said in rows),
        problem="; ".join(problems),
    )


def kills(count: int, seed: int, directory: Path) -> list[Kill]:
    """Kill and resume so many runs."""
    runner, generator = Runner(directory), random.Random(seed)
    wholes = {kind: _whole(runner, kind) for kind in RUNS}
    found = []
    for number in tqdm(range(count), unit="kill", disable=None):
        kind = list(RUNS)[number % len(RUNS)]
        out, whole = runner.out(f"{number}"), wholes[kind]
        path, seconds = out / RECORD, generator.uniform(0, whole.seconds)
        runner.run(kind, out, False, seconds)
        before = path.read_bytes() if path.exists() else b""
        # Before there is a file there is nothing to resume, and the command would say so.
        status = runner.run(kind, out, path.exists())
        kill = Kill(kind, round(seconds, 3), place(before))
        found.append(compared(kill, whole, before, path, status))
    return found


def _whole(runner: Runner, kind: str) -> Whole:
    """The first run of a kind is slower, and is not timed; the last one's record is taken."""
    took = []
    for name in ("first", *range(TIMED)):
        out, begin = runner.out(f"{kind}-{name}"), time.perf_counter()
        status = runner.run(kind, out, False)
        took.append(time.perf_counter() - begin)
    try:
        found = record.read(out / RECORD)
    except RecordError as error:
        raise RuntimeError(f"{error}\n{(out / 'log.txt').read_text()}") from None
    assert status is not None
    return Whole(status, dict(told(found)), median(took[1:]))


def render(found: Sequence[Kill]) -> str:
    """The counts by kind of run, and what is wrong below them."""
    table = []
    for kind in [*RUNS, "all"]:
        own = [kill for kill in found if kind in (kill.run, "all")]
        places = Counter(kill.place for kill in own)
        sums = [sum(getattr(k, name) for k in own) for name in ("lost", "doubled", "changed")]
        table.append([kind, len(own), *(places[p] for p in PLACES), *sums, _fine(own)])
    head = ["run", "kills", *PLACES, "rows lost", "doubled", "changed", "resumed to the end"]
    wrong = [
        f"{kill.run}, killed after {kill.seconds} s, {kill.place}: {kill.lost} lost, "
        f"{kill.doubled} doubled, {kill.changed} changed; {kill.problem}".rstrip("; ")
        for kill in found
        if not kill.fine
    ]
    return "\n".join([tabulate(table, head), *(wrong or ["nothing lost, nothing doubled"])])


def _fine(kills: Sequence[Kill]) -> int:
    return sum(not kill.problem for kill in kills)


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, resume, compare and print; 1 if anything was lost or doubled."""
    parser = Parser("python -m harness.bench.killed", __doc__)
    add = parser.add_argument
    add("--kills", type=int, default=200, metavar="N", help="default: %(default)s")
    add("--seed", type=int, default=SEED, metavar="S", help="of the times (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="every kill, as JSON")
    given = parser.parse_args(arguments)
    try:
        if given.kills < 1:
            raise ValueError(f"--kills is {given.kills}: at least 1")
        if given.json:
            record.check_writable("--json", given.json)
    except ValueError as error:
        return refuse(error)
    # The process that forks must have no threads but its own.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as directory:
        found = kills(given.kills, given.seed, Path(directory))
    print(render(found))
    if given.json:
        told = {"seed": given.seed, "kills": [asdict(kill) for kill in found]}
        record.write_json(given.json, told)
    return int(not all(kill.fine for kill in found))


if __name__ == "__main__":
    sys.exit(main())
