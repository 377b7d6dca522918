"""``python -m harness.bench.scale``: what a verdict costs, and what more workers buy.

Four tables. By tokens: processor time and memory of generation, oracle and e-process, each number
of tokens in a fresh process. By error level: tokens until a fault is found. By workers: the suites
under pytest-xdist, and whole runs of them over Ray, by one worker and by two in turns.
"""

from __future__ import annotations

import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate
from tqdm import tqdm

from harness import record
from harness.command_line import Parser, refuse
from harness.stats import on_engine
from reference_impl.engine import SpeculativeEngine

TOKENS = (1_000, 10_000, 100_000, 1_000_000)
ALPHAS = (1e-2, 1e-4, 1e-6, 1e-8)
FACTOR = 1.1  # of the fault that is looked for: acceptance with probability min(1, 1.1 p/q)
SEEDS = 5
TURNS = (1, 2, 2, 1)  # workers
RUNS = 4  # of the suites, spread over the workers
PARTS = ("tokens", "alpha", "xdist", "ray")


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """So many tokens of a right engine, through everything that a verdict takes.

    Attributes
    ----------
    tokens : int
    generations : int
    generating, scoring : float
        Seconds on one thread.
    before, most : float
        MiB of this process: with models loaded and 1,000 tokens judged, and at most.
    """

    tokens: int
    generations: int
    generating: float
    scoring: float
    before: float
    most: float


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens until over-acceptance is found, one number for each seed; None where it was not."""

    alpha: float
    after: list[int | None]


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the same work by one worker and by two, in turns."""

    what: str
    command: str
    one: list[float]
    two: list[float]

    @property
    def gain(self) -> float:
        """How many times faster two are."""
        return statistics.geometric_mean(self.one) / statistics.geometric_mean(self.two)


class Scale(msgspec.Struct, kw_only=True):
    """All that was measured."""

    costs: list[Cost] = []
    found: list[Found] = []
    workers: list[Workers] = []


class Generous(on_engine.OverAccept):
    """The fault."""

    factor = FACTOR


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was measured."""
    parser = Parser("python -m harness.bench.scale", __doc__)
    add = parser.add_argument
    add("--only", action="append", choices=PARTS, help="one of the tables (repeatable)")
    add("--tokens", type=int, nargs="+", default=list(TOKENS), metavar="N")
    add("--seeds", type=int, default=SEEDS, metavar="N", help="of every error level (default: 5)")
    add("--json", type=Path, metavar="FILE", help="write the figures here")
    add("--cost-of", type=int, metavar="N", help="only that, in this process, as JSON")
    given = parser.parse_args(arguments)
    if given.cost_of:
        sys.stdout.buffer.write(msgspec.json.encode(cost(given.cost_of)) + b"\n")
        return 0
    if given.json:
        try:
            record.check_writable("--json", given.json)  # before it takes minutes
        except ValueError as error:
            return refuse(error)
    parts, found = given.only or PARTS, Scale()
    if "tokens" in parts:
        found.costs = [_in_fresh_process(n) for n in tqdm(given.tokens, "tokens", disable=None)]
    if "alpha" in parts:
        levels = tqdm(ALPHAS, "error levels", disable=None)
        found.found = [time_to_verdict(alpha, given.seeds) for alpha in levels]
    for part, measure in (("xdist", xdist), ("ray", ray)):
        if part in parts:
            found.workers.append(measure())
    print(render(found))
    if given.json:
        record.write_json(given.json, msgspec.to_builtins(found))
    return 0


def cost(tokens: int) -> Cost:
    """What so many tokens of the reference take in this process."""
    on_engine.detect(1e-4, TOKENS[0], SpeculativeEngine)  # loads what is loaded once
    before = _memory()
    done = on_engine.detect(1e-4, tokens, SpeculativeEngine, seed=TOKENS[0])
    return Cost(
        tokens=done.tokens,
        generations=done.tokens // on_engine.NEW_TOKENS,
        generating=done.generating,
        scoring=done.scoring,
        before=before,
        most=_memory(),
    )


def _memory() -> float:
    """MiB that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_fresh_process(tokens: int) -> Cost:
    command = [sys.executable, "-m", "harness.bench.scale", "--cost-of", str(tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Cost)


def time_to_verdict(alpha: float, seeds: int) -> Found:
    """Tokens until the fault is found at an error level, by seed."""
    after = [
        on_engine.detect(alpha, engine=Generous, seed=seed * on_engine.MOST).found_after
        for seed in range(seeds)
    ]
    return Found(alpha=alpha, after=after)


def xdist() -> Workers:
    """The suites at the smoke profile, by one worker of pytest-xdist and by two."""
    words = ["-m", "pytest", "suites/", "--profile", "smoke", "-q"]
    command = " ".join(["python", *words, "-n", "WORKERS"])
    return _in_turns("pytest-xdist", command, lambda workers: [*words, "-n", str(workers)])


def ray() -> Workers:
    """Runs of the same suites with one seed each, by one worker of a Ray cluster and by two."""
    words = ["-m", "harness.seeds", "--seeds", str(RUNS), "--executor", "ray"]
    with tempfile.TemporaryDirectory() as directory:

        def command(workers: int) -> list[str]:
            out = Path(directory) / f"{time.monotonic_ns()}.jsonl"
            return [*words, "--jobs", str(workers), "--out", str(out)]

        return _in_turns("Ray", " ".join(["python", *words, "--jobs", "WORKERS"]), command)


def _in_turns(what: str, command: str, words: Callable[[int], list[str]]) -> Workers:
    """Time the work by one worker and by two, each pair of turns in another order."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for workers in tqdm(TURNS, what, disable=None):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, *words(workers)], capture_output=True, check=False)
        if done.returncode:
            raise SystemExit((done.stdout + done.stderr).decode(errors="replace"))
        seconds[workers].append(round(time.perf_counter() - begin, 2))
    return Workers(what=what, command=command, one=seconds[1], two=seconds[2])


def render(found: Scale) -> str:
    """The tables that there are."""
    parts = []
    if found.costs:
        rows = [
            (
                f"{c.tokens:,}",
                f"{c.generations:,}",
                1000 * (c.generating + c.scoring) / c.generations,
                f"{c.scoring / (c.generating + c.scoring):.0%}",
                c.most,
                c.most - c.before,
            )
            for c in found.costs
        ]
        headers = ["tokens", "generations", "s per 1,000 generations", "scoring"]
        headers += ["MiB at most", "of which these tokens"]
        parts.append(tabulate(rows, headers, floatfmt=(".0f", ".0f", ".2f", "", ".0f", ".0f")))
    if found.found:
        levels = [(f"{f.alpha:g}", *_middle(f.after), len(f.after)) for f in found.found]
        headers = ["alpha", "tokens to the verdict (median)", "fewest", "most", "seeds"]
        parts.append(f"over-acceptance by {FACTOR:g}\n" + tabulate(levels, headers))
    if found.workers:
        turns = [
            (w.what, statistics.geometric_mean(w.one), statistics.geometric_mean(w.two), w.gain)
            for w in found.workers
        ]
        headers = ["over", "seconds, one worker", "two workers", "times faster"]
        parts.append(tabulate(turns, headers, floatfmt=(".0f", ".1f", ".1f", ".2f")))
    return "\n\n".join(parts)


def _middle(after: Sequence[int | None]) -> tuple[str, str, str]:
    """Median, fewest and most; a fault that was not found counts as infinitely late."""
    ordered = sorted(math.inf if n is None else n for n in after)
    said = (statistics.median_high(ordered), ordered[0], ordered[-1])
    median, fewest, most = ("not found" if n == math.inf else f"{n:,}" for n in said)
    return median, fewest, most


if __name__ == "__main__":
    sys.exit(main())
