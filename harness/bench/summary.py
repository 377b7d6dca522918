"""Figures of a benchmark run: pure functions of its rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.bench.columns import STATUSES, Floats, Table, columns, groups, ratios
from harness.bench.estimate import Estimate, geometric_mean
from harness.record import GenerationRow, VerdictRow
from harness.verdict import Status

EVIDENCE = "bench.evidence"  # the check that judges sampled outputs: ``harness.bench.gate``
REPEATING = 0.2  # share of repeated 4-grams from which on text is called degenerate


@dataclass(frozen=True)
class Losslessness:
    """Whether the outputs that were timed are the plain ones.

    Attributes
    ----------
    status : Status
        PASS only if every output is identical, or differs first at a near tie. UNSUPPORTED for a
        decoder that declares itself lossy: it claims nothing that could hold. Of sampled outputs
        what the evidence of all of the decoder's tokens says.
    identical, near_ties, faults, errors, total : int
        Outputs, one a row.
    """

    status: Status
    identical: int
    near_ties: int
    faults: int
    errors: int
    total: int
    sampled: bool = False

    @property
    def failed(self) -> bool:
        """Whether some output is not the target's, declared or not."""
        return bool(self.faults) or self.status is Status.FAIL

    @property
    def disqualifies(self) -> bool:
        """Whether a speedup would be one of a decoder that does not do its job."""
        return self.status in (Status.FAIL, Status.ERROR, Status.UNSUPPORTED)

    @property
    def objection(self) -> str:
        """Why a speedup is no result, in words; empty where it is one."""
        if not self.disqualifies:
            return ""
        return "lossy by design" if self.status is Status.UNSUPPORTED else "not lossless"


@dataclass(frozen=True)
class Summary:
    """One decoder on one task.

    Attributes
    ----------
    speedup : Estimate or None
        None where nothing could be timed.
    slower, prompts : int
        Prompts that speculation slowed down, of those timed.
    per_token : bool
        Whether some outputs differ in length, so that seconds alone do not compare.
    acceptance : float or None
        Accepted / drafted tokens; None where the decoder does not tell its rounds.
    length_over_rounds, length_over_requests : float or None
        Mean accepted length (tokens per target call, recovered or bonus token included), over all
        rounds, and as a mean over requests of each one's own.
    plain_rate, rate : float
        Tokens per second, all tokens over all seconds.
    repetition : float
        Mean share of repeated 4-grams in the plain outputs.
    """

    decoder: str
    task: str
    losslessness: Losslessness
    speedup: Estimate | None
    slower: int
    prompts: int
    per_token: bool
    acceptance: float | None
    length_over_rounds: float | None
    length_over_requests: float | None
    plain_rate: float
    rate: float
    repetition: float


def summarise(
    rows: Sequence[GenerationRow],
    decoders: Sequence[str],
    declared_lossy: Collection[str] = (),
    evidence: Mapping[str, Status] | None = None,
) -> list[Summary]:
    """Every task and decoder, tasks in the order of the rows; then each decoder over all tasks."""
    found, said = columns(rows), evidence or {}
    return [
        _summary(
            decoder,
            task,
            group,
            found.repetitions,
            judge(group, decoder in declared_lossy, said.get(decoder)),
        )
        for decoder, task, group in groups(found, found.table, decoders)
    ]


def _summary(
    decoder: str, task: str, group: Table, repetitions: Floats, losslessness: Losslessness
) -> Summary:
    timed = group.timed
    told = timed.where(timed["rounds"] > 0)
    speedups = ratios(timed)
    rounds, drafted = int(told["rounds"].sum()), int(told["drafted"].sum())
    accepted = int(told["accepted"].sum())
    return Summary(
        decoder=decoder,
        task=task,
        losslessness=losslessness,
        speedup=geometric_mean(speedups) if len(speedups) else None,
        slower=int((speedups < 1).sum()),
        prompts=len(speedups),
        per_token=bool((timed["tokens"] != timed["plain_tokens"]).any()),
        acceptance=accepted / drafted if drafted else None,
        length_over_rounds=(accepted + rounds) / rounds if rounds else None,
        length_over_requests=1 + float((told["accepted"] / told["rounds"]).mean())
        if rounds
        else None,
        plain_rate=_rate(int(timed["plain_tokens"].sum()), float(timed["plain_seconds"].sum())),
        rate=_rate(int(timed["tokens"].sum()), float(timed["seconds"].sum())),
        repetition=float(repetitions[timed["text"]].mean()) if len(timed) else 0.0,
    )


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else math.nan


def evidence_of(verdicts: Sequence[VerdictRow]) -> dict[str, Status]:
    """By decoder, what its sampled outputs were found to be."""
    return {r.decoder: r.verdict.status for r in verdicts if r.item.startswith(EVIDENCE)}


def judge(
    table: Table, declared_lossy: bool = False, evidence: Status | None = None
) -> Losslessness:
    """Judge the very outputs that were timed.

    Parameters
    ----------
    table : Table
        Rows of one decoder.
    evidence : Status, optional
        Of sampled outputs, which no comparison of ids can judge; without it they are INCONCLUSIVE.
    """
    numbers = np.bincount(table["verdict"], minlength=len(STATUSES)).tolist()
    counts = dict(zip(STATUSES, numbers, strict=True))
    near_ties = int((table["near_tie"] & (table["verdict"] == STATUSES.index(Status.PASS))).sum())
    order = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.PASS)
    status = next((kind for kind in order if counts[kind]), Status.INCONCLUSIVE)
    sampled = bool(table["sampled"].any())
    if sampled and evidence and status is Status.INCONCLUSIVE:
        status = evidence
    return Losslessness(
        status=Status.UNSUPPORTED if declared_lossy and status is not Status.ERROR else status,
        identical=counts[Status.PASS] - near_ties,
        near_ties=near_ties,
        faults=counts[Status.FAIL],
        errors=counts[Status.ERROR],
        total=len(table),
        sampled=sampled,
    )
