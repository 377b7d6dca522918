"""Acceptance by place in the block: what a block of K drafts gives, draft by draft.

A rate is accepted over tried, all rounds together, with a 95% bootstrap interval over prompts
(percentiles): the rounds of one prompt have its text in common, and are not drawn anew one by one.
Where that says nothing (one prompt, or a rate of 0 or 1) the interval is that of Clopper and
Pearson over rounds, which is too narrow where the rounds of a prompt are alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.bench.columns import Columns, Table, columns, groups
from harness.bench.estimate import CONFIDENCE, MANY, RESAMPLES, RESAMPLING_SEED, Estimate, mean
from harness.record import GenerationRow
from harness.stats.trials import Trials, wrong_rounds

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Position:
    """One place of a block, the first of which is 1.

    Attributes
    ----------
    place : int
    tried : int
        Rounds that drafted a token there and accepted all before it.
    conditional : Estimate
        Accepted / tried.
    joint : Estimate
        Share of all rounds that accepted the drafts up to here.
    drafted : float
        Share of all rounds that drafted a token there.
    theory : float or None
        Mean of sum min(p, q) where it was tried: how often token-wise rejection accepts (Leviathan
        et al. 2023, corollary 3.6). None where the record does not have it.
    """

    place: int
    tried: int
    conditional: Estimate
    joint: Estimate
    drafted: float
    theory: float | None = None


@dataclass(frozen=True)
class Acceptance:
    """One decoder on one task.

    Attributes
    ----------
    positions : list of Position
        Up to the last place at which a draft was tried.
    histogram : dict of int to int
        Rounds by how many drafts they accepted.
    length_over_rounds, length_over_requests : float
        Mean accepted length (recovered or bonus token included): over all rounds, which is one
        more than the sum of the joint rates, and as a mean over requests of each one's own.
    """

    decoder: str
    task: str
    rounds: int
    positions: list[Position]
    histogram: dict[int, int]
    length_over_rounds: float
    length_over_requests: float


def acceptances(rows: Sequence[GenerationRow], decoders: Sequence[str]) -> list[Acceptance]:
    """Every decoder that tells its rounds: task by task, then over all tasks."""
    found = columns(rows)
    table = found.table
    told = table.where(table["timeable"] & (table["drafted"] > 0) & table["even"])
    return [
        _acceptance(decoder, task, group, found)
        for decoder, task, group in groups(found, told, decoders)
    ]


def _acceptance(decoder: str, task: str, group: Table, found: Columns) -> Acceptance:
    rounds_of = found.rounds.of(group)
    drafted, accepted = rounds_of.drafted, rounds_of.accepted
    names, numbers = np.unique(group["prompt"], return_inverse=True)
    of = np.repeat(numbers, group["rounds"])
    places = range(1, int(np.minimum(drafted, accepted + 1).max()) + 1)

    def by_prompt(chosen: NDArray[np.bool_]) -> Floats:
        return np.bincount(of, chosen, len(names)).astype(np.float64)

    tried = np.stack([by_prompt((drafted >= i) & (accepted >= i - 1)) for i in places])
    won = np.stack([by_prompt(accepted >= i) for i in places])
    of_prompt = np.bincount(numbers, group["rounds"], len(names))
    rounds = np.tile(of_prompt, (len(places), 1))
    rates = _rates(np.concatenate([won, won]), np.concatenate([tried, rounds]))
    theory = _theory(found.rows_of(group))
    return Acceptance(
        decoder=decoder,
        task=task,
        rounds=len(accepted),
        positions=[
            Position(
                place=place,
                tried=int(tried[place - 1].sum()),
                conditional=rates[place - 1],
                joint=rates[len(places) + place - 1],
                drafted=float((drafted >= place).mean()),
                theory=theory.get(place),
            )
            for place in places
        ],
        histogram=rounds_of.histogram,
        length_over_rounds=float(accepted.mean()) + 1,
        length_over_requests=float((group["accepted"] / group["rounds"]).mean()) + 1,
    )


def _rates(won: Floats, tried: Floats) -> list[Estimate]:
    """Rates [m] of counts [m, prompts], each with its interval."""
    ends = _resampled(won, tried) if 1 < won.shape[1] < MANY else [(np.nan, np.nan)] * len(won)
    found = []
    for successes, trials, (low, high) in zip(won, tried, ends, strict=True):
        rate = float(successes.sum() / trials.sum())
        if len(successes) >= MANY and 0 < rate < 1:  # the delta method makes a mean of it
            found.append(mean((rate + (successes - rate * trials) / trials.mean()).tolist()))
            continue
        if not low < high:
            low, high = _clopper_pearson(int(successes.sum()), int(trials.sum()))
        found.append(Estimate(rate, float(low), float(high)))
    return found


def _resampled(won: Floats, tried: Floats) -> list[tuple[float, float]]:
    from scipy.stats import bootstrap  # takes a second to import

    def ratio(successes: Floats, trials: Floats, axis: int) -> Any:
        with np.errstate(invalid="ignore"):  # prompts without a trial, drawn alone
            return successes.sum(axis) / trials.sum(axis)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of intervals that do not exist: they are NaN
        interval = bootstrap(
            (won, tried),
            ratio,
            n_resamples=RESAMPLES,
            batch=max(1, 1_000_000 // won.size),
            paired=True,
            axis=-1,
            confidence_level=CONFIDENCE,
            method="percentile",
            random_state=np.random.default_rng(RESAMPLING_SEED),
        ).confidence_interval
    return list(zip(interval.low, interval.high, strict=True))


def _clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(CONFIDENCE, "exact")
    return float(interval.low), float(interval.high)


def _theory(rows: Sequence[GenerationRow]) -> dict[int, float]:
    """Mean of sum min(p, q) by place, of the rows that have it."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.overlap is None or not (rounds := row.rounds):
            continue
        if wrong_rounds(rounds, len(row.overlap), None):
            continue
        trials = Trials.of(rounds, row.overlap)
        for place, overlap in zip(trials.position.tolist(), trials.beta.tolist(), strict=True):
            found.setdefault(place + 1, []).append(overlap)
    return {place: float(np.mean(values)) for place, values in found.items()}
