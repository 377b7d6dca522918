"""The exact output law of the engine, with its real arithmetic, against the target's.

The engine is run once for every way its coins can fall. Which values of a coin lead to which
token is read off the engine itself: the weights it hands to ``inverse_cdf``, and the border of
its ``accept``, found by bisection. So the law is exact, without a sample and without a p-value.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.contract import Grammar, Request, Sampling
from harness.models import ModelPair
from reference_impl import acceptance, autoregressive, branches, engine, tree
from reference_impl.acceptance import BlockVerification, SamplerMatching
from reference_impl.batch import Batch
from reference_impl.branches import TwoBranches
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters import branching, sequential
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal
from reference_impl.randomness import enumerate_outcomes, inverse_cdf
from reference_impl.tree import TreeEngine

Law = dict[tuple[int, ...], float]
Decision = tuple[list[float], int]  # weights of all answers, and the one that was given
STEP = 2.0**-50  # tells the coins apart, and is far below any weight that counts


class Coins:
    """Stands in for ``Streams``: a script of coins per row, and what each of them decided."""

    def __init__(self, scripts: list[list[float]]) -> None:
        self.scripts = scripts
        self.values: list[list[float]] = [[] for _ in scripts]
        self.decided: list[dict[int, Decision]] = [{} for _ in scripts]
        self.rows = np.arange(len(scripts))  # of the script that each row in flight follows
        self.drawn = [0] * len(scripts)
        self.active = np.array([])  # rows in flight that still decode

    def uniform(self, count: int, used: Tensor) -> Tensor:
        coins = []
        for row, needed in zip(self.rows, used.tolist(), strict=True):
            script, values, first = self.scripts[row], self.values[row], self.drawn[row]
            for index in range(len(values), first + count):
                base = script[index] if index < len(script) else 0.0
                values.append(base + (index + 1) * STEP)
            coins.append(values[first : first + count])
            self.drawn[row] = first + needed
        return torch.tensor(coins, dtype=torch.float64)

    def select(self, rows: Tensor) -> None:
        self.rows = self.rows[rows.numpy()]

    def decide(self, at: int, u: float, weights: list[float], answer: int) -> None:
        """The coin ``u`` of the row in flight ``at`` gave ``answer``, of these weights."""
        row = self.rows[at]
        coin = self.values[row].index(u)
        if self.active[at] and coin < self.drawn[row]:  # else the row does not use it
            total = sum(weights)
            self.decided[row][coin] = ([w / total for w in weights], answer)

    def weight(self, row: int) -> float:
        return math.prod(weights[answer] for weights, answer in self.decided[row].values())

    def forget(self, at: int, first: int) -> None:
        """The coins of the row in flight ``at`` from ``first`` on decided nothing that counts."""
        row = self.rows[at]
        for coin in range(first, self.drawn[row]):
            self.decided[row].pop(coin, None)

    def other_scripts(self, row: int) -> Iterator[list[float]]:
        """Those that part from this row's at a coin that its script left open."""
        script = self.scripts[row]
        for coin, (weights, answer) in self.decided[row].items():
            if coin < len(script):
                continue
            for later in range(answer + 1, len(weights)):
                if weights[later] > 1e-9:
                    middle = sum(weights[:later]) + weights[later] / 2
                    yield [*script, *[0.0] * (coin - len(script)), middle]


class Watching(SpeculativeEngine):
    """An engine that tells where the border of each acceptance lies.

    Attributes
    ----------
    scripted : Coins
    stops : set of (int, int)
        How many drafts were asked for in a round, and how many of them were proposed.
    judged : set of (int, int)
        How many drafts were proposed in a round, and how many of them were accepted.
    """

    scripted: Coins

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.stops: set[tuple[int, int]] = set()
        self.judged: set[tuple[int, int]] = set()

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """What a row would have drafted after it stopped is drawn if another row goes on."""
        first = [self.scripted.drawn[row] for row in self.scripted.rows]
        proposal = super().propose(batch, count)
        for at in np.flatnonzero(batch.active):
            proposed = int(proposal.count[at])
            self.stops.add((int(count[at]), proposed))
            self.scripted.forget(at, first[at] + proposed)
        return proposal

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        self.scripted.active = batch.active.copy()
        return super().round(batch, target, cached)

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        kept = super().accept(p, q, u)
        below, above = torch.zeros_like(u), torch.ones_like(u)
        for _ in range(40):
            middle = (below + above) / 2
            falls_well = super().accept(p, q, middle)
            below = torch.where(falls_well, middle, below)
            above = torch.where(falls_well, above, middle)
        reached = kept.long().cumprod(1).sum(1)  # coins after the first rejection change nothing
        for row, i in itertools.product(range(len(u)), range(u.shape[1])):
            if i <= reached[row]:
                border = float(above[row, i])
                answer = int(not kept[row, i])
                self.scripted.decide(row, float(u[row, i]), [border, 1 - border], answer)
        return kept


class Watched(Watching):
    """Token-wise rejection."""


class WatchedBlock(Watching, BlockVerification):
    """Block verification."""


class WatchedMatching(Watching, SamplerMatching):
    """Sampler matching."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return SpeculativeEngine.accept(self, p, q, u)  # equal or not: no coin decides


class WatchedTree(Watching, TreeEngine):
    """Trees."""


class WatchedBranches(Watching, TwoBranches):
    """Two chains: the border of each opening's coin is found by bisection, too."""

    def tried(self, p: Tensor, candidates: Tensor, u: Tensor) -> Tensor:
        token = super().tried(p, candidates, u)
        last = u.shape[1] - 1
        for i in range(last):  # a coin counts if those before it fell badly
            below, above = torch.zeros_like(u[:, i]), torch.ones_like(u[:, i])
            for _ in range(40):
                middle = (below + above) / 2
                coins = u.clone()
                coins[:, :last] = 1 - STEP
                coins[:, i] = middle
                falls_well = super().tried(p, candidates, coins) == candidates[:, i]
                below = torch.where(falls_well, middle, below)
                above = torch.where(falls_well, above, middle)
            earlier = (candidates[:, :i] == token.unsqueeze(1)).any(1)
            for at in np.flatnonzero(~earlier.numpy()):
                border = float(above[at])
                answer = int(token[at] != candidates[at, i])
                self.scripted.decide(at, float(u[at, i]), [border, 1 - border], answer)
        return token


def engine_law(watched: Watching, request: Request, patch: pytest.MonkeyPatch) -> Law:
    """Every way a generation can go, many at a time."""
    law: Law = defaultdict(float)

    def draw(probabilities: Tensor, u: Tensor) -> Tensor:
        chosen = inverse_cdf(probabilities, u)
        for at in itertools.product(*map(range, u.shape)):  # one a row, or one a position
            weights = probabilities[at].tolist()
            watched.scripted.decide(at[0], float(u[at]), weights, int(chosen[at]))
        return chosen

    def falls(u: Tensor, chance: Tensor) -> Tensor:
        well = u < chance
        for at in itertools.product(*map(range, u.shape)):
            h = float(chance[at])
            if 0 < h < 1:  # else there is nothing to decide, or nobody asks
                watched.scripted.decide(at[0], float(u[at]), [h, 1 - h], int(not well[at]))
        return well

    patch.setattr("reference_impl.batch.Streams", lambda *_: watched.scripted)
    for module in (acceptance, tree):
        patch.setattr(module, "falls", falls)
    for module in (acceptance, branches, engine, sequential, tree, branching):
        patch.setattr(module, "inverse_cdf", draw)
    scripts: list[list[float]] = [[]]
    while scripts:
        now, scripts = scripts[:500], scripts[500:]
        watched.scripted = Coins(now)
        for row, completion in enumerate(watched.generate([request] * len(now))):
            law[tuple(completion.tokens)] += watched.scripted.weight(row)
            watched.judged |= {(entry.drafted, entry.accepted) for entry in completion.rounds or ()}
            scripts += watched.scripted.other_scripts(row)
    return law


def target_law(pair: ModelPair, request: Request) -> Law:
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    law: Law = defaultdict(float)
    for completion, weight in enumerate_outcomes(
        lambda randomness: autoregressive.decode(laws, request, randomness)
    ):
        law[tuple(completion.tokens)] += weight
    return law


def assert_exact(
    watched: Watching, pair: ModelPair, request: Request, patch: pytest.MonkeyPatch
) -> None:
    """The law of what it returns is the target's: all of it, and to what float32 laws allow."""
    law = engine_law(watched, request, patch)
    assert sum(law.values()) == pytest.approx(1, abs=1e-6)
    assert distance(law, target_law(pair, request)) < 1e-6


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}) / 2


NARROW = Sampling(temperature=1.5, top_k=3)
EVERYTHING = Sampling(
    temperature=1.2,
    top_k=4,
    top_p=0.9,
    min_p=0.05,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=-0.3,
    min_new_tokens=2,
    logit_bias={2: 1.0},
)
ALTERNATING = Grammar(({1: 1, 3: 1}, {2: 0, 4: 0, 6: 2}, {}))
CASES = {
    "narrow": Request(prompt=(1, 2), max_new_tokens=3, sampling=NARROW, draft_tokens=2),
    "wide": Request(
        prompt=(1, 2),
        max_new_tokens=3,
        sampling=Sampling(temperature=1.5, top_k=5),
        draft_tokens=2,
    ),
    "whole": Request(
        prompt=(3,), max_new_tokens=2, sampling=Sampling(temperature=1.0), draft_tokens=1
    ),
    "everything": Request(
        prompt=(1, 2, 1), max_new_tokens=3, sampling=EVERYTHING, draft_tokens=2, eos=(0, 2)
    ),
    "long": Request(
        prompt=(6,),
        max_new_tokens=4,
        sampling=Sampling(temperature=1.5, top_k=2),
        draft_tokens=3,
        eos=(3,),
    ),
    "grammar": Request(  # the parity changes with every token, up to an even one that ends it
        prompt=(4,),
        max_new_tokens=4,
        sampling=Sampling(temperature=1.5, grammar=ALTERNATING),
        draft_tokens=2,
        eos=(6,),
    ),
    "stop": Request(
        prompt=(5, 1), max_new_tokens=3, sampling=NARROW, draft_tokens=2, stop=((0,), (4, 2))
    ),
}
