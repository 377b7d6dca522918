"""What a pass rules out: confidence sequences on how wrong a decoder can be, and what was visible.

For a one-parameter family of laws a_e (the share of tokens that follow the draft; the factor by
which acceptance is too generous) every value e is a null hypothesis of its own. The mixture over
the family, divided by the wealth of a_e, is an e-process under a_e; so the values that it has not
rejected hold the true one, at all times at once, with probability 1 - alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from scipy import stats

from harness.stats import faults
from harness.stats.eprocess import from_numbers, numbers
from harness.stats.experts import Expert, log_ratios
from harness.stats.levels import check_level
from harness.stats.rows import Rows


@dataclass(frozen=True)
class Family:
    """Laws of one parameter, ordered from no fault to the grossest.

    Attributes
    ----------
    name : str
    values : tuple of float
        The first one is the target's law itself.
    says : str
        A bound in words, with ``{}`` for the value.
    experts : tuple of Expert
        One a value.
    """

    name: str
    values: tuple[float, ...]
    says: str
    experts: tuple[Expert, ...]


def _grid(first: float, last: float, per_decade: int) -> tuple[float, ...]:
    steps = round(per_decade * math.log10(last / first))
    return tuple(first * (last / first) ** (i / steps) for i in range(steps + 1))


def _family(name: str, values: tuple[float, ...], law: Any, key: str, says: str) -> Family:
    experts = [
        Expert(name, says.format(f"{v:.3g}"), partial(law, **{key: v}), frozenset({"q"}))
        for v in values
    ]
    return Family(name, values, says, tuple(experts))


LEAK = _family(
    "leak",
    (0.0, *_grid(1e-4, 1.0, 12)),
    faults.leak,
    "rate",
    "at most {} of the tokens follow the draft instead of the target",
)
OVER_ACCEPTANCE = _family(
    "over-acceptance",
    (1.0, *(1 + e for e in _grid(0.005, 8.0, 6))),
    faults.over_accept,
    "factor",
    "drafts are accepted at most {} times too readily",
)


class Certificate:
    """Confidence sequence on the parameter of a family.

    Parameters
    ----------
    family : Family
    alpha : float
        One minus the confidence.
    """

    def __init__(self, family: Family, alpha: float) -> None:
        check_level(alpha)
        self.family, self.alpha = family, alpha
        self.log_wealths = torch.zeros(len(family.values), dtype=torch.float64)
        self._rejected = torch.zeros(len(family.values), dtype=torch.bool)

    def update(self, rows: Rows) -> None:
        """Take in these rows' tokens."""
        gains = log_ratios(self.family.experts, rows.here)
        self.log_wealths += gains.sum(0).cpu()
        self._take_in_impossible(rows)
        self.look()

    def look(self) -> None:
        """Rule out what the wealth, as it is now, rules out."""
        mixture = self.log_wealths.logsumexp(0) - math.log(len(self.log_wealths))
        kept = (mixture - self.log_wealths < -math.log(self.alpha)).nonzero()
        # Of the others only those above all that are kept: a truth between two values may reject
        # the one at one time and the other at another.
        if len(kept):
            self._rejected[int(kept[-1]) + 1 :] = True

    def _take_in_impossible(self, rows: Rows) -> None:
        """Tokens that the target rules out: they tell between values that allow them."""
        ruled_out = rows.here.p.squeeze(1) == 0
        if rows.near is not None:
            ruled_out &= ~rows.near
        if not bool(ruled_out.any()):
            return
        laws = torch.cat([e.law(rows.here) for e in self.family.experts], 1)[ruled_out]
        told = laws[laws.amax(1) > 0]  # no value of the family has to do with the others
        self.log_wealths += told.log().sum(0).cpu()

    @property
    def upper(self) -> float:
        """Every larger value is ruled out; the largest one where none is."""
        # The next value above the last that was kept, for the truth may lie between the two.
        last = int((~self._rejected).sum()) - 1
        return self.family.values[min(last + 1, len(self.family.values) - 1)]

    @property
    def says_something(self) -> bool:
        """Whether ``upper`` rules anything out."""
        return self.upper < self.family.values[-1]

    def __str__(self) -> str:
        return self.family.says.format(f"{self.upper:.3g}")

    def state(self) -> dict[str, Any]:
        """What ``resume`` continues from: JSON types."""
        return {"log_wealths": numbers(self.log_wealths), "rejected": self._rejected.tolist()}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.log_wealths = from_numbers(state["log_wealths"])
        self._rejected = torch.tensor(state["rejected"])


class Growth:
    """How fast each expert's wealth grows if it is right: what a test of that many tokens can see.

    Per token the log wealth of expert a under its own law has mean KL(a || p) and some variance;
    the sum over many tokens is nearly normal. Of an expert that allows what p rules out, one such
    token is proof, and how likely it is counts as well.

    Parameters
    ----------
    experts : sequence of Expert
    """

    def __init__(self, experts: Sequence[Expert]) -> None:
        self.experts = tuple(experts)
        self.rows = 0
        self._sums = torch.zeros(3, len(self.experts), dtype=torch.float64)

    def update(self, rows: Rows) -> None:
        """Take in the contexts of these rows; what was emitted does not matter."""
        at = rows.everywhere
        for j, expert in enumerate(self.experts):
            law = expert.law(at)
            ratio = torch.where((law > 0) & (at.p > 0), law.log() - at.log_p, 0.0)
            self._sums[0, j] += (law * ratio).sum().cpu()
            self._sums[1, j] += (law * ratio.square()).sum().cpu()
            self._sums[2, j] += law.masked_fill(at.p > 0, 0.0).sum().cpu()
        self.rows += len(rows)

    def state(self) -> dict[str, Any]:
        """What ``add`` takes in: JSON types."""
        return {"rows": self.rows, "sums": self._sums.tolist()}

    def add(self, state: Mapping[str, Any]) -> None:
        """Take in the contexts that another one has seen."""
        self.rows += state["rows"]
        self._sums += torch.tensor(state["sums"], dtype=torch.float64)

    def mean(self, j: int) -> float:
        """KL(a_j || p) in nats per token, of the tokens that p allows."""
        return float(self._sums[0, j]) / max(1, self.rows)

    def variance(self, j: int) -> float:
        """Of the log ratio of one token under expert j."""
        return float(self._sums[1, j]) / max(1, self.rows) - self.mean(j) ** 2

    def impossible(self, j: int) -> float:
        """Probability of a token that p rules out, under expert j."""
        return min(1.0, float(self._sums[2, j]) / max(1, self.rows))

    def tokens_needed(self, j: int, threshold: float, power: float) -> float:
        """Tokens that convince of expert j with probability ``power``.

        By a log wealth of ``threshold``, or by one impossible token, whichever takes fewer.
        """
        proof = self.impossible(j)
        if proof == 1:
            return 1.0
        by_proof = math.log(1 - power) / math.log1p(-proof) if proof > 0 else math.inf
        return min(by_proof, self._by_wealth(j, threshold, power))

    def _by_wealth(self, j: int, threshold: float, power: float) -> float:
        mean, deviation = self.mean(j), math.sqrt(max(0.0, self.variance(j)))
        if mean <= 1e-12:
            return math.inf
        z = float(stats.norm.isf(1 - power))
        # n mean - z deviation sqrt(n) = threshold, solved for sqrt(n)
        root = (z * deviation + math.sqrt(z * z * deviation**2 + 4 * mean * threshold)) / (2 * mean)
        return root**2

    def visible(self, tokens: int, threshold: float, power: float) -> list[Expert]:
        """Of each family, the slightest fault that so many tokens would have shown."""
        slightest: dict[str, tuple[float, Expert]] = {}
        for j, expert in enumerate(self.experts):
            needed = self.tokens_needed(j, threshold, power)
            if slightest.get(expert.family, (0.0,))[0] < needed <= tokens:
                slightest[expert.family] = (needed, expert)
        return [expert for _, expert in slightest.values()]
