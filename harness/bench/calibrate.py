"""``python -m harness.bench.calibrate``: is the paired timing worth its interval on this machine?

Two decoders of which the truth is known are measured again and again. One decodes plainly in both
arms: its interval must hold 1.00. The other does so too, and then waits for a fifth of the time
that it took: its interval must lie below 1. Each in at least 19 of 20 runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec
from scipy import stats
from tabulate import tabulate
from tqdm import tqdm

from harness.adapters import DecoderError, load_decoder
from harness.bench.estimate import CONFIDENCE, Estimate
from harness.bench.measure import Settings, measure, schedule
from harness.bench.profiles import DRAFT_TOKENS
from harness.bench.summary import summarise
from harness.bench.tasks import ALL_TASKS, TASKS, WorkloadError
from harness.bench.workload import load_workload
from harness.command_line import BadInput, Parser, refuse, require_positive
from harness.contract import Completion, Decoder, Request
from harness.models import ModelPair, PairError, load_pair
from harness.record import machine

SEED = 20261129
SLOWER = 0.2
SHARE = 19 / 20  # of runs that must be right


class Known:
    """A decoder that never speculates, and whose speculative arm is slower by a known share.

    It declares no ``stream``: nothing but the timed calls is of interest.
    """

    def __init__(self, decoder: Decoder, slower: float) -> None:
        self.decoder, self.slower = decoder, slower
        self.capabilities = decoder.capabilities & {"greedy", "plain"}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode plainly; then wait, where speculation is asked for."""
        started = time.perf_counter()
        plain = [msgspec.structs.replace(request, speculate=False) for request in requests]
        completions = self.decoder.generate(plain)
        if requests[0].speculate:
            now = time.perf_counter()
            end = now + self.slower * (now - started)
            while time.perf_counter() < end:  # sleeping wakes up too late
                pass
        return completions


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many runs were right; 0 if enough were."""
    given = _parser().parse_args(arguments)
    try:
        require_positive(given, "runs", "prompts", "max_new_tokens")
        pair = load_pair(given.pair)
        decoder = load_decoder(given.decoder, pair)
        found = {slower: _runs(pair, Known(decoder, slower), given) for slower in (0.0, SLOWER)}
    except (BadInput, PairError, DecoderError, WorkloadError) as error:
        return refuse(error)
    print(render(found, given.runs))
    return int(not all(enough(right(slower, of), len(of)) for slower, of in found.items()))


def _runs(pair: ModelPair, decoder: Known, given: argparse.Namespace) -> list[Estimate]:
    """The speedup of every run, over all its prompts."""
    prompts = load_workload(pair, TASKS, given.prompts, given.max_new_tokens)
    settings = Settings(given.max_new_tokens, DRAFT_TOKENS, pair.vocab_size)
    found = []
    for run in tqdm(range(given.runs), f"{decoder.slower:.0%} slower", disable=None):
        trials = schedule(["known"], prompts, 1, SEED + run)
        rows = list(measure({"known": decoder}, trials, settings, lambda *_: ("", {})))
        (over_all,) = [of for of in summarise(rows, ["known"]) if of.task == ALL_TASKS]
        if over_all.speedup is None:
            raise BadInput(f"it cannot be timed: {rows[0].error}; choose another --decoder")
        found.append(over_all.speedup)
    return found


def right(slower: float, found: Sequence[Estimate]) -> int:
    """Runs whose interval says what is known."""
    held = [
        (of.low if of.low is not None else of.value, of.high if of.high is not None else of.value)
        for of in found
    ]
    return sum(high < 1 if slower else low <= 1 <= high for low, high in held)


def enough(count: int, runs: int) -> bool:
    """Whether so many of the runs are at least 19 of 20."""
    return count >= SHARE * runs


def render(found: dict[float, list[Estimate]], runs: int) -> str:
    """The counts, and how often a perfect interval would reach them."""
    rows = []
    for slower, of in found.items():
        truth = 1 / (1 + slower)
        held = "below 1" if slower else "holds 1.00"
        mean = sum(e.value for e in of) / len(of)
        rows.append([f"{slower:.0%}", f"{truth:.3f}x", f"{mean:.3f}x", held, right(slower, of)])
    needed = min(count for count in range(runs + 1) if enough(count, runs))
    chance = float(stats.binom.sf(needed - 1, runs, CONFIDENCE))
    told = ", ".join(f"{name} {value}" for name, value in machine().items())
    return "\n".join(
        [
            tabulate(rows, ["slower by", "truth", "mean measured", "interval", f"of {runs} runs"]),
            "",
            f"needed: {needed}. An exact interval holds the truth in {CONFIDENCE:.0%} of all runs, "
            f"and so is that good on the first line in {chance:.0%} of attempts.",
            f"machine: {told}",
        ]
    )


def _parser() -> Parser:
    parser = Parser("python -m harness.bench.calibrate", __doc__)
    add = parser.add_argument
    add("--pair", default="tiny", help="default: %(default)s")
    add("--decoder", default="reference", help="whose plain arm is timed (default: %(default)s)")
    add("--runs", type=int, default=20, metavar="N", help="of each decoder (default: %(default)s)")
    add("--prompts", type=int, default=8, metavar="N", help="a task (default: %(default)s)")
    add("--max-new-tokens", type=int, default=32, metavar="N", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
