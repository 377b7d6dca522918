"""What records hold for and against a claim: lossless runs, and intervals of their figures.

A claim is judged by intervals, never by a value. Where it speaks of several decoders or tasks, one
interval on the wrong side is enough against it; so that chance does not have many tries, the
intervals of one claim share their 5% (Bonferroni).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from harness.bench.columns import columns
from harness.bench.estimate import CONFIDENCE, Estimate
from harness.bench.row_figures import cost, plain_cost, ratios_by_prompt, unit
from harness.bench.summary import (
    EVIDENCE,
    Losslessness,
    evidence_of,
    judge,
)
from harness.record import GenerationRow, Header, Record, VerdictRow
from harness.report.benchmark import FEW_PROMPTS
from harness.verdict import Status

NAMED = 6  # figures of one side that are told; the tables have the others
OF_LAW = ("distribution.", EVIDENCE)  # checks of what was sampled from models
OF_OUTPUT = ("greedy.", "exact_law.", *OF_LAW)  # checks that a lossless decoder passes
ByPrompt = Mapping[tuple[str, str], float]


class Outcome(enum.Enum):
    """What records make of a claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"  # measured, and the intervals lie on both sides
    NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Judgement:
    """An outcome, and the figures that it rests on."""

    outcome: Outcome
    figures: list[str] = field(default_factory=list)


NOTHING = Judgement(Outcome.NOT_MEASURED)


@dataclass(frozen=True)
class Run:
    """One decoder of one record, lossless as far as that can be told; rows that were timed."""

    decoder: str
    header: Header
    rows: list[GenerationRow]

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        return float(self.header.options.get("temperature") or 0)

    @cached_property
    def tasks(self) -> dict[str, list[GenerationRow]]:
        """Rows by task."""
        found: dict[str, list[GenerationRow]] = {}
        for row in self.rows:
            found.setdefault(row.task, []).append(row)
        return found

    def speedups(self, task: str = "") -> ByPrompt:
        """Of every prompt, of one task or of all."""
        return ratios_by_prompt(self.tasks.get(task, []) if task else self.rows, plain_cost, cost)

    def acceptance(self, task: str = "") -> ByPrompt:
        """Accepted / drafted tokens of every prompt, where the decoder tells its rounds."""
        return _by_prompt(
            (row, sum(row.accepted or []) / sum(row.drafted))
            for row in (self.tasks.get(task, []) if task else self.rows)
            if row.drafted and sum(row.drafted)
        )

    def lengths(self) -> ByPrompt:
        """Tokens per target call of every prompt, recovered or bonus token included."""
        return _by_prompt(
            (row, 1 + sum(row.accepted or []) / len(row.drafted))
            for row in self.rows
            if row.drafted
        )


def _by_prompt(values: Iterable[tuple[GenerationRow, float]]) -> ByPrompt:
    found: dict[tuple[str, str], list[float]] = {}
    for row, value in values:
        found.setdefault(unit(row), []).append(value)
    return {prompt: fmean(repeats) for prompt, repeats in found.items()}


@dataclass(frozen=True)
class Outputs:
    """What became of the outputs of one decoder of one record, lossless or not."""

    decoder: str
    header: Header
    losslessness: Losslessness


@dataclass(frozen=True)
class Evidence:
    """All that some records hold, but for decoders that declare themselves lossy.

    Attributes
    ----------
    runs : list of Run
        Only of decoders whose outputs are the plain ones; sampled ones, whose outputs may differ,
        where their distribution passed a check among the records.
    outputs : list of Outputs
    headers : list of Header
    verdicts : list of VerdictRow
        PASS and FAIL of the suites, expected or not.
    """

    runs: list[Run]
    outputs: list[Outputs]
    verdicts: list[VerdictRow]
    headers: list[Header] = field(default_factory=list)

    def of(self, *checks: str) -> tuple[list[VerdictRow], list[VerdictRow]]:
        """PASS and FAIL of checks whose names begin so."""
        rows = [row for row in self.verdicts if row.verdict.check.startswith(checks)]
        failed = [row for row in rows if row.verdict.status is Status.FAIL]
        return [row for row in rows if row.verdict.status is Status.PASS], failed


def evidence(records: Sequence[Record]) -> Evidence:
    """Sort out what counts."""
    verdicts = [
        row
        for record in records
        for row in record.verdicts
        if row.verdict.status in (Status.PASS, Status.FAIL)
        and row.decoder not in record.header.options.get("declared_lossy", ())
    ]
    of_output = Evidence([], [], verdicts).of(*OF_OUTPUT)
    of_law = Evidence([], [], verdicts).of("distribution.")
    wrong = {row.decoder for row in of_output[1]}
    follows = {row.decoder for row in of_law[0]}
    runs, outputs = [], []
    for record in records:
        rows = columns(record.generations)
        for decoder in rows.decoders:
            if decoder in record.header.options.get("declared_lossy", ()):
                continue
            group = rows.of_decoder(decoder)
            found = judge(group, evidence=evidence_of(record.verdicts).get(decoder))
            outputs.append(Outputs(decoder, record.header, found))
            sampled = found.status is Status.INCONCLUSIVE and decoder in follows
            if (found.status is Status.PASS or sampled) and decoder not in wrong:
                timed = rows.rows_of(group.timed)
                runs.append(Run(decoder, record.header, timed))
    return Evidence(runs, outputs, verdicts, [record.header for record in records])


def named(runs: Sequence[Run]) -> list[tuple[str, Run]]:
    """Runs by decoder, and by what tells the runs of one decoder apart."""
    settings = [_settings(run) for run in runs]
    names = []
    for run, own in zip(runs, settings, strict=True):
        others = [s for r, s in zip(runs, settings, strict=True) if r.decoder == run.decoder]
        telling = [text for i, text in enumerate(own) if len({other[i] for other in others}) > 1]
        names.append(" ".join([run.decoder, *telling]))
    begun = [f" of {run.header.started[:16]}" for run in runs]
    numbers = [f" (run {number})" for number in range(1, len(runs) + 1)]
    for suffixes in (begun, numbers):
        seen = Counter(names)
        names = [n + s * (seen[n] > 1) for n, s in zip(names, suffixes, strict=True)]
    return list(zip(names, runs, strict=True))


def _settings(run: Run) -> tuple[str, ...]:
    options, pair = run.header.options, run.header.pair
    length = options.get("prompt_tokens")
    return (
        f"on {pair.name}",
        pair.dtype,
        pair.device,
        f"T={run.temperature:g}",
        f"K={options.get('draft_tokens')}",
        f"batch={options.get('batch_size') or 1}",
        f"prompts of {length}" if length else "prompts as they are",
        f"tokens={options.get('max_new_tokens')}",
        f"{options.get('draft_choice') or 'right'} draft",
    )


def estimates(
    samples: Mapping[str, ByPrompt], kind: Callable[[Sequence[float], float], Estimate]
) -> dict[str, Estimate]:
    """Intervals that hold together; without those over fewer prompts than an interval takes."""
    enough = {name: s for name, s in samples.items() if len(s) >= FEW_PROMPTS}
    return {
        name: kind(list(sample.values()), shared(len(enough))) for name, sample in enough.items()
    }


def shared(count: int) -> float:
    """Confidence of each of so many intervals that hold together."""
    return 1 - (1 - CONFIDENCE) / max(1, count)


def ends(found: Estimate) -> tuple[float, float]:
    """Low and high; a value without an interval is nowhere."""
    if found.low is None or found.high is None:
        return float("-inf"), float("inf")
    return found.low, found.high


def times(name: str, found: Estimate) -> str:
    """A ratio in words."""
    return f"{name} {found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def percent(name: str, found: Estimate) -> str:
    """A share in words."""
    return f"{name} {found.value:.0%} [{found.low:.0%}, {found.high:.0%}]"


def every(
    found: Mapping[str, Estimate],
    holds: Callable[[float, float], bool | None],
    words: Callable[[str, Estimate], str] = times,
    few: bool = False,
) -> Judgement:
    """Judge a claim about all of the figures: one that is wholly elsewhere contradicts it.

    Parameters
    ----------
    holds : callable
        From the ends of an interval: True or False, None where it lies on both sides.
    few : bool
        Whether something was measured, on too few prompts.
    """
    sides: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for name, estimate in found.items():
        sides[holds(*ends(estimate))].append(words(name, estimate))
    told = [
        f"{label}: {some(sides[side])}"
        for side, label in ((False, "against"), (True, "for"), (None, "on both sides"))
        if sides[side]
    ]
    if few:
        told.append(f"intervals take {FEW_PROMPTS} prompts, and some figures have fewer")
    if sides[False]:
        return Judgement(Outcome.CONTRADICTED, told)
    if sides[None] or (few and not sides[True]):
        return Judgement(Outcome.UNDECIDED, told)
    return Judgement(Outcome.SUPPORTED, told) if sides[True] else NOTHING


def judged_all(
    samples: Mapping[str, ByPrompt],
    kind: Callable[[Sequence[float], float], Estimate],
    holds: Callable[[float, float], bool | None],
    words: Callable[[str, Estimate], str] = times,
) -> Judgement:
    """``every`` of the figures that some samples give."""
    samples = {name: sample for name, sample in samples.items() if sample}
    few = any(len(sample) < FEW_PROMPTS for sample in samples.values())
    return every(estimates(samples, kind), holds, words, few)


def some(texts: Sequence[str]) -> str:
    """The first few."""
    more = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"and {more} more"] if more > 0 else [])])


def within(low: float, high: float) -> Callable[[float, float], bool | None]:
    """Whether an interval lies inside, outside, or over an edge."""

    def holds(start: float, end: float) -> bool | None:
        if low <= start and end <= high:
            return True
        return False if end < low or start > high else None

    return holds
