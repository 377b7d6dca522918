"""Speculation on against off, pair by pair: a test that may stop whenever it has seen enough.

Completion i of either arm answers the same request, drawn independently of the other. Under H0
(lossless) the pair is exchangeable, so the J experts' differences D = score(one) - score(other)
are symmetric about 0, all signs turned at once. A trio: ``PairedBets`` decides, ``smallest_drift``
and ``pairs_needed`` say what it sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from harness.stats.levels import check_count, check_level, check_positive
from harness.stats.two_sample import Floats, check_scores

SCALES = (0.25, 1.0, 4.0)
LIMIT = 1e6  # further apart than this is as good as certain; keeps every sum finite


def _scale_bets(differences: Floats, scales: Floats) -> Floats:
    """Log e-values [n, J, S] of the differences [n, J] at every scale."""
    scaled = np.clip(differences, -LIMIT, LIMIT)[..., None] * scales  # odd: symmetry is kept
    bets: Floats = math.log(2) - np.logaddexp(0.0, -scaled)
    return bets


def _sign_bets(positive: NDArray[Any], negative: NDArray[Any]) -> Floats:
    """Log wealth of the KT bettor after that many signs of either kind."""
    beta = special.betaln(positive + 0.5, negative + 0.5)
    wealth: Floats = (positive + negative) * math.log(2) + beta - math.log(math.pi)
    return wealth


class PairedBets:
    """E-process of J experts against the symmetry of their differences.

    Every expert bets in several ways, whose wealths are averaged by fixed weights:

    * at scale s, a pair pays 2 / (1 + exp(-s D)). Given the unordered pair {x, y} and r = a / p,
      D = log r(x) - log r(y): the likelihood that ``one`` is the faulty arm, a(x) p(y), over its
      mean with p(x) a(y), is r(x) / ((r(x) + r(y)) / 2) = 2 / (1 + exp(-D)); s tempers an expert
      whose fault is not of the size it is here. Its mean at D and -D is 1, for any s;
    * on signs, a pair pays 1 + l sign(D), with l = (sum of past signs) / (1 + their number):
      Krichevsky and Trofimov 1981, in closed form 2^(h+t) B(h + 1/2, t + 1/2) / pi after h
      positive and t negative signs. It does not care for the scale, and bets both ways.

    Under H0 the average has expectation 1 at any time, so it ever reaches 1/alpha with probability
    at most alpha (Ville 1939), and D = 0 pays 1 in every bet.

    Parameters
    ----------
    experts : int
        J, fixed in advance.
    scales : sequence of float
        A negative scale bets that scores under speculation are lower.
    weights : sequence of float [J], optional
        Shares of the experts, positive; equal by default. Each is split equally over the bets.

    Attributes
    ----------
    pairs : int
        Seen so far.
    """

    def __init__(
        self,
        experts: int,
        scales: Sequence[float] = SCALES,
        weights: Sequence[float] | None = None,
    ) -> None:
        check_count("experts", experts)
        self._scales = _checked_scales(scales)
        self._weights = np.ones(experts) if weights is None else np.array(weights, dtype=np.float64)
        if self._weights.shape != (experts,):
            raise ValueError(f"weights have shape {self._weights.shape} for {experts} experts")
        for weight in self._weights:
            check_positive("a weight", weight)
        shares = self._weights / self._weights.sum() / (len(self._scales) + 1)
        self._log_shares = np.log(shares)[:, None]
        self._sums = np.zeros((experts, len(self._scales)))
        self._signs = np.zeros((experts, 2), dtype=np.int64)
        self._peak = 0.0
        self.pairs = 0

    def update(self, differences: ArrayLike) -> None:
        """Bet on the pairs with these differences [n, J], float64, in the order of the rows."""
        rows = check_scores("differences", differences)
        if rows.shape[1] != len(self._sums):
            raise ValueError(f"differences of {rows.shape[1]} experts, not {len(self._sums)}")
        # cumsum adds one row after the other, so it does not matter how pairs come in batches.
        steps = np.concatenate([self._sums[None], _scale_bets(rows, self._scales)])
        sums = np.cumsum(steps, axis=0)[1:]
        signs = self._signs + np.cumsum(np.stack([rows > 0, rows < 0], -1), axis=0)
        wealths = self._wealths(sums, signs)
        total = np.logaddexp.reduce(wealths.reshape(len(rows), -1), axis=-1)
        self._peak = max(self._peak, float(total.max()))
        self._sums, self._signs = sums[-1], signs[-1]
        self.pairs += len(rows)

    def _wealths(self, sums: Floats, signs: NDArray[np.int64]) -> Floats:
        """Weighted log wealths [..., J, S + 1]."""
        on_signs = _sign_bets(signs[..., 0], signs[..., 1])[..., None]
        wealths: Floats = np.concatenate([sums, on_signs], axis=-1) + self._log_shares
        return wealths

    @property
    def log_wealth(self) -> float:
        """Of the average, now."""
        return float(np.logaddexp.reduce(self._wealths(self._sums, self._signs).ravel()))

    @property
    def peak(self) -> float:
        """The largest ``log_wealth`` after any pair."""
        return self._peak

    @property
    def leader(self) -> int:
        """The expert that holds most of the wealth."""
        return int(np.logaddexp.reduce(self._wealths(self._sums, self._signs), axis=-1).argmax())

    def decision(self, alpha: float) -> bool:
        """Whether H0 is rejected at ``alpha``: the wealth has been 1/alpha after some pair."""
        check_level(alpha)
        return self._peak >= -math.log(alpha)

    def state(self) -> dict[str, Any]:
        """All there is, for ``json.dumps``; ``resume`` goes on from it as if never stopped."""
        return {
            "scales": self._scales.tolist(),
            "weights": self._weights.tolist(),
            "sums": self._sums.tolist(),
            "signs": self._signs.tolist(),
            "peak": self._peak,
            "pairs": self.pairs,
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any]) -> Self:
        """The bets as they were at ``state``; ValueError if it is none."""
        missing = {"scales", "weights", "sums", "signs", "peak", "pairs"} - set(state)
        if missing:
            raise ValueError(f"state lacks {', '.join(sorted(missing))}")
        bets = cls(len(state["weights"]), state["scales"], state["weights"])
        sums = check_scores("sums", state["sums"])
        signs = np.array(state["signs"], dtype=np.int64)
        if sums.shape != bets._sums.shape or signs.shape != bets._signs.shape:
            raise ValueError(f"state has sums {sums.shape} and signs {signs.shape}")
        bets._sums, bets._signs = sums, signs
        bets._peak, bets.pairs = float(state["peak"]), int(state["pairs"])
        return bets


def _checked_scales(scales: Sequence[float]) -> Floats:
    values = np.array(scales, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"scales have shape {values.shape}: it must be [S], S >= 1")
    for scale in values:
        check_positive("the size of a scale", abs(scale))
    return values


# --- what it sees -------------------------------------------------------------------------------


def _increments(differences: Floats, scales: Floats) -> Floats:
    """Log wealth won per pair and bet [n, J, S + 1]; signs at the share l the sample suggests."""
    signs = np.sign(differences)
    share = signs.sum(0) / (1 + np.abs(signs).sum(0))
    return np.concatenate(
        [_scale_bets(differences, scales), np.log1p(share * signs)[..., None]], -1
    )


def growth(differences: ArrayLike, scales: Sequence[float] = SCALES) -> Floats:
    """Log wealth won per pair under the alternative that ``differences`` [n, J] are drawn from.

    Returns
    -------
    ndarray [J, S + 1], float64
        By expert and bet, that on signs last. About log(1/alpha) over the largest pairs are needed.
    """
    rows = check_scores("differences", differences)
    return np.asarray(_increments(rows, _checked_scales(scales)).mean(0))


def pairs_needed(
    differences: ArrayLike,
    alpha: float,
    power: float,
    scales: Sequence[float] = SCALES,
    most: int = 10_000_000,
) -> int:
    """Pairs after which H0 is rejected with probability ``power``; ``most`` if none suffice.

    By the best single bet: its sum after N pairs is taken as normal with the sample's mean g and
    deviation d, so that N g - z d sqrt(N) must be log(1/alpha) plus what the bet's share of the
    average costs, log(J (S + 1)), and on signs KT's regret, log(pi N / 2) / 2. The average holds
    more than one bet and may stop before N, so this is cautious; but g is the best of many on
    one sample, which should be a hundred pairs or more.

    Parameters
    ----------
    differences : array_like [n, J], float64
        A sample of the alternative.
    """
    check_level(alpha)
    check_level(power, "power")
    rows = check_scores("differences", differences)
    won = _increments(rows, _checked_scales(scales))
    mean, deviation = won.mean(0), won.std(0)
    cost = math.log(mean.size / alpha)
    spread = stats.norm.ppf(power) * deviation
    with np.errstate(all="ignore"):
        needed = np.ones_like(mean)
        for _ in range(50):  # the regret's N: a contraction, as its logarithm moves little
            due = np.full_like(mean, cost)
            due[:, -1] += 0.5 * np.log(np.pi / 2 * np.maximum(needed[:, -1], 1))
            root = (spread + np.sqrt(spread**2 + 4 * mean * due)) / (2 * mean)
            needed = np.where(mean > 0, np.minimum(root**2, most), most)
    return math.ceil(float(needed.min()))


def smallest_drift(
    pairs: int, experts: int, alpha: float, power: float, bets: int = len(SCALES) + 1
) -> float:
    """Smallest mean of D, in its standard deviations, that is found within that many pairs.

    By one expert's bet on signs alone, exactly: h positive signs make its wealth J ``bets`` /
    alpha, so P(D > 0) must be the share pi at which P(Binomial(pairs, pi) >= h) = ``power``, a
    beta quantile (Clopper and Pearson 1934); for normal D the drift is the normal quantile of pi.
    The average does no worse, and better where a scale suits. ``inf`` if all signs would not do.
    """
    for name, count in (("pairs", pairs), ("experts", experts), ("bets", bets)):
        check_count(name, count)
    check_level(alpha)
    check_level(power, "power")
    positive = np.arange((pairs + 1) // 2, pairs + 1)  # from half on, more of them are worth more
    enough = positive[_sign_bets(positive, pairs - positive) >= math.log(experts * bets / alpha)]
    if not len(enough):
        return math.inf
    share = stats.beta.ppf(power, enough[0], pairs - enough[0] + 1)
    return max(0.0, float(stats.norm.ppf(share)))
