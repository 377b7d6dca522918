"""How often each statistic rejects a right decoder, beside the level it promises.

``python -m harness.stats.calibration``: share of false alarms over many runs, with an exact
binomial interval (Clopper and Pearson 1934); exit code 1 if an interval lies above its level. The
levels, 0.01 and 0.05, are large, for a rate of 1e-6 could not be counted. Sequential statistics
are looked at again and again and stopped at the first crossing. Fixed-sample tests should come out
at their level, bets below it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from tabulate import tabulate
from tqdm import tqdm

from harness import record
from harness.command_line import Parser, refuse
from harness.stats.false_alarms import LEVELS, STUDIES

Ints = NDArray[np.int64]
RUNS = 10_000
CONFIDENCE = 0.999  # of each interval: a hundred right ones should all hold their level
AT_ONCE = 250  # runs of a job; one of them is checked


@dataclass(frozen=True)
class Calibration:
    """False alarms of a statistic on a decoder.

    Attributes
    ----------
    statistic, decoder : str
    alpha : float
        The level it promises.
    runs, alarms : int
    low, high : float
        Interval on the rate.
    """

    statistic: str
    decoder: str
    alpha: float
    runs: int
    alarms: int
    low: float
    high: float

    @classmethod
    def of(cls, statistic: str, decoder: str, alpha: float, alarms: int, runs: int) -> Calibration:
        interval = stats.binomtest(alarms, runs).proportion_ci(CONFIDENCE, method="exact")
        low, high = float(interval.low), float(interval.high)
        return cls(statistic, decoder, alpha, runs, alarms, low, high)

    @property
    def too_many(self) -> bool:
        """Whether the level is not held."""
        return self.low > self.alpha


@dataclass(frozen=True)
class _Job:
    study: str
    decoder: str
    runs: int
    seed: int

    def run(self) -> dict[str, list[int]]:
        """By statistic, runs that are rejected at each of ``LEVELS``."""
        torch.set_num_threads(1)
        study = STUDIES[self.study]
        generator = torch.Generator().manual_seed(self.seed)
        found = study.measure(study.decoders[self.decoder], self.runs, generator)
        return {name: [int((p <= a).sum()) for a in LEVELS] for name, p in found.items()}


def _jobs(runs: int, seed: int, only: Sequence[str]) -> Iterator[_Job]:
    for name, study in STUDIES.items():
        for decoder in study.decoders:
            if only and not any(word in f"{name} {decoder}" for word in only):
                continue
            for first in range(0, runs, AT_ONCE):
                # Its own seed, so that what is left out changes nothing
                own = zlib.crc32(f"{seed} {name} {decoder} {first}".encode())
                yield _Job(name, decoder, min(AT_ONCE, runs - first), own)


def measure(jobs: Sequence[_Job], processes: int) -> list[Calibration]:
    """Do the runs and count."""
    if processes == 1:
        counted = [job.run() for job in tqdm(jobs, disable=None)]
    else:
        with multiprocessing.get_context("spawn").Pool(min(processes, len(jobs))) as pool:
            counted = list(tqdm(pool.imap(_Job.run, jobs), total=len(jobs), disable=None))
    runs: dict[tuple[str, str], int] = defaultdict(int)
    alarms: dict[tuple[str, str], Ints] = defaultdict(lambda: np.zeros(len(LEVELS), np.int64))
    for job, counts in zip(jobs, counted, strict=True):
        for statistic, rejected in counts.items():
            runs[statistic, job.decoder] += job.runs
            alarms[statistic, job.decoder] += rejected
    return [
        Calibration.of(*names, alpha, int(alarms[names][i]), total)
        for names, total in runs.items()
        for i, alpha in enumerate(LEVELS)
    ]


def report(found: Sequence[Calibration]) -> str:
    """The table, and which levels are not held."""
    rows = [
        [
            f.statistic,
            f.decoder,
            f"{f.alpha:g}",
            f"{f.alarms:,} / {f.runs:,}",
            f"{f.alarms / f.runs:.4f} [{f.low:.4f}, {f.high:.4f}]",
        ]
        for f in found
    ]
    above = [
        f"above its level: {f.statistic}, {f.decoder}, {f.alpha:g}" for f in found if f.too_many
    ]
    head = ["statistic", "decoder", "alpha", "false alarms", f"rate [{CONFIDENCE:.1%} interval]"]
    return "\n".join(
        [
            tabulate(rows, head, disable_numparse=True),
            *(above or ["no interval lies above its level"]),
        ]
    )


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[_Job]]:
    parser = Parser("python -m harness.stats.calibration", __doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="of each statistic and decoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="statistics or decoders with it"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every count, as JSON")
    options = parser.parse_args(arguments)
    for name in ("runs", "jobs"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} is {getattr(options, name)}: at least 1")
    jobs = list(_jobs(options.runs, options.seed, options.only))
    if not jobs:
        raise ValueError(f"no statistic has {' or '.join(options.only)} in its name")
    if options.json:
        record.check_writable("--json", options.json)
    return options, jobs


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, and say which levels do not hold: exit code 1 if any."""
    try:
        options, jobs = _options(arguments)
    except ValueError as error:
        return refuse(error)
    found = measure(jobs, options.jobs)
    print(report(found))
    if options.json:
        record.write_json(options.json, _json(found, options.seed))
    return 1 if any(f.too_many for f in found) else 0


def _json(found: Sequence[Calibration], seed: int) -> dict[str, object]:
    return {
        "seed": seed,
        "confidence": CONFIDENCE,
        "statistics": [asdict(f) for f in found],
    }


if __name__ == "__main__":
    sys.exit(main())
