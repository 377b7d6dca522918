"""What speculation would give at another K: acceptance by place, and what the calls cost.

Theorem 3.8 of Leviathan et al. 2023, for rates that differ by place and blocks that cost more than
a token. The unit is a call of the target over one token. A round of K drafts gives

    tau(K) = 1 + sum over i <= K of P(the first i drafts are accepted)

tokens, and takes v(k) + c k + o, where k(K) <= K tokens are drafted on average, c is the cost of
one, v that of the block, and o the time between the calls. A token of the plain arm takes 1 + o'.
Reading the prompt takes a share f of the plain arm, which speculation leaves as it is. Hence

    speedup(K) = 1 / (f + (1 - f) (v(k) + c k + o) / (tau(K) (1 + o')))

At the K that was measured this is seconds over seconds, an identity (but for tokens of a last round
that the end of the output cut off); elsewhere it is a prediction.
With one rate a at all places, o = o' = f = 0: (1 - a^(K+1)) / ((1 - a) (v + c K)).

Where nothing was measured: between two measured blocks v is interpolated; elsewhere it goes on with
the slope of the line through (0, 1) and the measured blocks, or level where that falls. Behind the
last measured place drafts are accepted, and made, as often as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.bench.acceptance import Acceptance
from harness.bench.columns import Table, columns, groups
from harness.bench.costs import Costs, telling
from harness.record import GenerationRow

FARTHEST = 4  # times the last measured place: beyond it nothing is predicted
CERTAIN = 1 - 1e-12


@dataclass(frozen=True)
class CostModel:
    """One decoder on one task.

    Attributes
    ----------
    draft : float
        c, cost of a drafted token.
    blocks : tuple of (float, float)
        Measured (k, v): mean drafted tokens of a round, and the cost of verifying them; by k.
    joint : tuple of float
        P(the first i drafts are accepted), i = 1, 2, ...
    last : float
        Rate at which the last of these places is accepted where it was tried.
    share : tuple of float
        Share of the rounds that draft at place i.
    overhead, plain_overhead : float
        o and o', time between the calls: of a round, and of a plain token.
    prompt : float
        f, share of the plain arm's time that reads the prompt.
    """

    decoder: str
    task: str
    draft: float
    blocks: tuple[tuple[float, float], ...]
    joint: tuple[float, ...]
    last: float
    share: tuple[float, ...]
    overhead: float = 0.0
    plain_overhead: float = 0.0
    prompt: float = 0.0

    @property
    def places(self) -> int:
        """Places of a block whose acceptance was measured; a larger K is an extrapolation."""
        return len(self.joint)

    def length(self, k: int) -> float:
        """tau, tokens a round at K = k."""
        beyond = self.joint[-1] * sum(self.last**i for i in range(1, k - self.places + 1))
        return 1 + sum(self.joint[:k]) + beyond

    def drafted(self, k: int) -> float:
        """Tokens drafted a round at K = k."""
        return sum(self.share[:k]) + self.share[-1] * max(0, k - self.places)

    def verify(self, drafted: float) -> float:
        """v, cost of a call over so many drafted tokens and one more."""
        ks, vs = (np.array(column) for column in zip(*self.blocks, strict=True))
        # The best line through (0, 1), but never one on which a longer block is cheaper.
        slope = max(0.0, float((ks * (vs - 1)).sum() / (ks * ks).sum()))
        inside = float(np.clip(drafted, ks[0], ks[-1]))
        return float(np.interp(inside, ks, vs)) + slope * (drafted - inside)

    def cost(self, k: int) -> float:
        """Of a round at K = k, in plain tokens, overhead on both sides included."""
        drafted = self.drafted(k)
        round_cost = self.verify(drafted) + self.draft * drafted + self.overhead
        return round_cost / (1 + self.plain_overhead)

    def speedup(self, k: int) -> float:
        """Over plain decoding at K = k, the prompt included."""
        return 1 / (self.prompt + (1 - self.prompt) * self.cost(k) / self.length(k))

    @property
    def ideal(self) -> CostModel:
        """The same, if nothing but the models' calls took time."""
        plain = (1 - self.prompt) / (1 + self.plain_overhead)
        prompt = self.prompt / (self.prompt + plain)
        return replace(self, overhead=0.0, plain_overhead=0.0, prompt=prompt)

    def best(self) -> int:
        """The K of the largest predicted speedup, the smallest of them; at least 1."""
        return max(range(1, FARTHEST * self.places + 1), key=self.speedup)

    def break_even(self, k: int) -> float | None:
        """The rate, the same at all places, at which K = k gives 1.0x; None if no rate does.

        Rounds are taken to draft as often, and to cost as much, as they did.
        """
        from scipy.optimize import brentq  # takes a second to import

        cost, drafted = self.cost(k), self.drafted(k)

        def surplus(rate: float) -> float:
            return 1 + drafted / k * sum(rate**i for i in range(1, k + 1)) - cost

        if surplus(0) >= 0:
            return 0.0
        return None if surplus(1) < 0 else float(brentq(surplus, 0, 1))

    @property
    def ceiling(self) -> float:
        """Speedup if drafts were free, K without end, and a block cost no more than a token.

        Infinite where every draft is accepted and the prompt takes no time.
        """
        if self.last > CERTAIN and self.joint[-1] > 0:
            length = math.inf
        else:
            length = 1 + sum(self.joint) + self.joint[-1] * self.last / (1 - self.last)
        cheapest = min([1.0, *(v for _, v in self.blocks)])
        rest = (1 - self.prompt) * cheapest / length / (1 + self.plain_overhead)
        return 1 / (self.prompt + rest) if self.prompt + rest else math.inf


def cost_models(
    rows: Sequence[GenerationRow], accepted: Sequence[Acceptance], spent: Sequence[Costs]
) -> list[CostModel]:
    """Of the same rows: every decoder and task of which acceptance and costs are known."""
    found = columns(rows)
    told = groups(found, telling(found.table), [of.decoder for of in spent])
    plain = {(decoder, task): group for decoder, task, group in told}
    accepted_by = {(of.decoder, of.task): of for of in accepted}
    keys = [((of.decoder, of.task), of) for of in spent]
    return [_model(plain[key], accepted_by[key], of) for key, of in keys if key in accepted_by]


def joined(models: Sequence[CostModel]) -> CostModel:
    """One model of a decoder measured at several K: acceptance of the longest, blocks of all."""
    longest = max(models, key=lambda model: model.places)
    return replace(longest, blocks=tuple(sorted({b for model in models for b in model.blocks})))


def _model(group: Table, accepted: Acceptance, spent: Costs) -> CostModel:
    verify, plain, prompt = (
        float(group[name].sum())
        for name in ("plain_verify_part", "plain_seconds", "plain_prompt_part")
    )
    return CostModel(
        decoder=accepted.decoder,
        task=accepted.task,
        draft=spent.draft,
        blocks=((spent.drafted, spent.verify),),
        joint=tuple(p.joint.value for p in accepted.positions),
        last=accepted.positions[-1].conditional.value,
        share=tuple(p.drafted for p in accepted.positions),
        # Shares of one arm's seconds, so in units of its calls:
        overhead=spent.parts["other"] / spent.parts["verify"] * spent.verify,
        plain_overhead=(plain - prompt - verify) / verify,
        prompt=prompt / plain,
    )
