"""How many tokens each statistic needs to find each fault, beside what any test would need.

``python -m harness.stats.efficiency``: tokens to detection (median and 90th percentile over
seeds) of the e-process with the draft's law known, with the learned tilt alone, and with the draft
unknown; of a chi-square test on one prompt, and of one on pooled PIT values. The bound is
log(1/alpha) / KL(fault || target): no test of level alpha that is sure to stop needs fewer tokens
on average.

The chi-square tests are done anew at each sample size, at the full level each time: more than a
fixed-sample test can claim, and still far behind.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tabulate import tabulate
from tqdm import tqdm

from harness import record
from harness.command_line import Parser, refuse
from harness.stats import on_engine
from harness.stats.detection import (
    FEWEST,
    MOST,
    best_tilt,
    pooled_pit,
    sequential,
    single_prompt,
)
from harness.stats.gallery import SOURCES, everything
from harness.stats.levels import check_level
from harness.stats.simulated import Simulated

ALPHA = 1e-6
LIMITS = {"q known": 2.5, "tilt alone": 8.0, "q unknown": 30.0}  # of the bound, medians
GIVE_UP = 1.6  # times the limit
NEAR_BEST = 6.0  # times what the best tilt without q would need: learning it takes some
RIGHT = 0.9  # share of runs in which the right expert leads


@dataclass(frozen=True)
class Efficiency:
    """What the runs on one fault gave.

    Attributes
    ----------
    fault, family, has_expert
        As in ``Simulated``.
    sources : tuple of str
        Public issues that report the fault.
    bound : float
        log(1 / alpha) / KL, in tokens; 0 where impossible tokens are emitted.
    best_without_q : float
        The same for the best tilt that does not look at the draft, had it been known in advance.
    tokens : dict of str to list of float
        By statistic, tokens to detection of every seed; infinity where there was none.
    most : dict of str to float
        By statistic, tokens after which a run was given up.
    named_right : float or None
        Share of detections with q known that name the right family.
    """

    fault: str
    sources: tuple[str, ...]
    family: str
    has_expert: bool
    bound: float
    best_without_q: float
    tokens: dict[str, list[float]]
    most: dict[str, float]
    named_right: float | None

    def median(self, statistic: str) -> float:
        """Median tokens to detection."""
        return float(np.median(self.tokens[statistic]))

    def late(self, statistic: str) -> float:
        """90th percentile of the tokens to detection."""
        return float(np.quantile(self.tokens[statistic], 0.9, method="higher"))

    def problems(self) -> list[str]:
        """Which of the stated limits do not hold."""
        found = []
        for statistic, limit in LIMITS.items() if self.has_expert and self.bound else ():
            # A test cannot stop before its first tokens, however strong the fault; and without q
            # there may be little to see, however much q would show.
            most = limit * max(self.bound, FEWEST)
            if statistic == "q unknown":
                most = max(most, NEAR_BEST * self.best_without_q)
            if self.median(statistic) > most:
                times = self.median(statistic) / self.bound
                found.append(f"{self.fault}: {statistic} needs {times:.1f} x the bound (> {limit})")
        if self.named_right is not None and self.named_right < RIGHT:
            found.append(f"{self.fault}: named rightly in {self.named_right:.0%} of the runs")
        return found


def measure(fault: Simulated, seeds: int, alpha: float) -> Efficiency:
    """Run every statistic on one fault."""
    torch.set_num_threads(1)
    impossible = math.isinf(fault.information)
    bound = 0.0 if impossible else -math.log(alpha) / fault.information
    most = {name: GIVE_UP * limit * max(bound, 100) for name, limit in LIMITS.items()}
    runs: dict[str, Callable[[int], tuple[float, str]]] = {
        "q known": lambda seed: sequential(
            fault, seed, alpha, most["q known"] if fault.has_expert else most["tilt alone"],
            q=True, named=True,
        ),
        "tilt alone": lambda seed: sequential(
            fault, seed, alpha, most["tilt alone"], q=True, named=False
        ),
        "q unknown": lambda seed: sequential(
            fault, seed, alpha, most["q unknown"], q=False, named=True
        ),
        "one prompt": lambda seed: (single_prompt(fault, seed, alpha), ""),
        "pooled PIT": lambda seed: (pooled_pit(fault, seed, alpha), ""),
    }  # fmt: skip
    results = {name: [run(seed) for seed in range(seeds)] for name, run in runs.items()}
    named = [family for tokens, family in results["q known"] if math.isfinite(tokens)]
    right = sum(family == fault.family for family in named) / max(1, len(named))
    return Efficiency(
        fault.name,
        SOURCES.get(fault.name, ()),
        fault.family,
        fault.has_expert,
        bound,
        0.0 if impossible else -math.log(alpha) / best_tilt(fault),
        {name: [tokens for tokens, _ in found] for name, found in results.items()},
        {**most, "one prompt": MOST, "pooled PIT": MOST},
        right if fault.family and not impossible else None,
    )


def _row(found: Efficiency) -> list[str]:
    def cell(statistic: str) -> str:
        median, late = found.median(statistic), found.late(statistic)
        if math.isinf(median):
            return f"> {found.most[statistic]:,.0f}"
        times = f" ({median / found.bound:.1f}x)" if found.bound else ""
        return (
            f"{median:,.0f}{times}, {late:,.0f}"
            if math.isfinite(late)
            else f"{median:,.0f}{times}, -"
        )

    return [
        found.fault,
        f"{found.bound:,.0f}",
        f"{found.best_without_q:,.0f}",
        *[cell(statistic) for statistic in found.tokens],
        "" if found.named_right is None else f"{found.named_right:.0%}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say which limits do not hold: exit code 1 if any."""
    parser = Parser("python -m harness.stats.efficiency", __doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each")
    parser.add_argument("--alpha", type=float, default=ALPHA, help="error level")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="faults with it"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run, as JSON")
    options = parser.parse_args(arguments)
    faults = [f for f in everything() if not options.only or any(w in f.name for w in options.only)]
    try:
        check_level(options.alpha)
        if options.seeds < 1 or options.jobs < 1:
            raise ValueError("--seeds and --jobs are at least 1")
        if not faults:
            raise ValueError(f"no fault has {' or '.join(options.only)} in its name")
        if options.json:
            record.check_writable("--json", options.json)
    except ValueError as error:
        return refuse(error)
    jobs = [(fault.name, options.seeds, options.alpha) for fault in faults]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = list(tqdm(pool.imap(_measure_named, jobs), total=len(jobs), disable=None))
    print(report(found, options.seeds, options.alpha))
    engine = on_engine.detect(options.alpha)
    print(engine)
    if options.json:
        content = _json(found, options.seeds, options.alpha) | {"on_engine": asdict(engine)}
        record.write_json(options.json, content)
    return 1 if any(f.problems() for f in found) or not engine.found_after else 0


def _measure_named(job: tuple[str, int, float]) -> Efficiency:
    name, seeds, alpha = job  # laws hold closures, which do not travel between processes
    return measure(next(f for f in everything() if f.name == name), seeds, alpha)


def report(found: Sequence[Efficiency], seeds: int, alpha: float) -> str:
    """The table, and which limits hold."""
    head = ["fault", "bound", "best without q", *found[0].tokens, "named"]
    problems = [problem for f in found for problem in f.problems()]
    limits = ", ".join(f"{name} {limit:g} x" for name, limit in LIMITS.items())
    return "\n".join(
        [
            f"tokens to detection at alpha {alpha:g}: median (x the bound), 90th percentile of "
            f"{seeds} seeds",
            tabulate([_row(f) for f in found], head, disable_numparse=True),
            f"limits on the median: {limits}; right expert in {RIGHT:.0%} of the runs",
            *(problems or ["all limits hold"]),
        ]
    )


def _json(found: Sequence[Efficiency], seeds: int, alpha: float) -> dict[str, object]:
    return {
        "seeds": seeds,
        "alpha": alpha,
        "faults": [asdict(f) for f in found],
    }


if __name__ == "__main__":
    sys.exit(main())
