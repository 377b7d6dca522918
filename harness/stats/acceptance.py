"""Acceptance against its expectation: how often may a drafted token be accepted?

With the laws p and q of a position known, beta = sum_x min(p(x), q(x)) = 1 - TV(p, q). Token-wise
rejection accepts a drafted position that it reaches with probability beta, whatever came before
(Leviathan et al. 2023, corollary 3.6). Under any exact rule at all the *first* drafted position of
a round is accepted with probability at most beta: the draft d is a draw from q, the emitted token
x one from p, and P(x = d) <= 1 - TV(p, q) for any coupling of the two. Later positions may exceed
it: block verification (Sun et al. 2024) does, and is exact. So

* more than beta at first positions is a fault, of the rule or of the counts;
* more at later positions, or less anywhere, is none of the output, and worth telling.

The trio: ``AcceptanceTest`` decides, ``smallest_excess`` and ``trials_needed`` say what it can see.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from harness.stats.levels import check_level
from harness.stats.trials import Floats, Trials, probabilities

Direction = Literal["more", "less"]
Where = Literal["first", "later", "all"]  # positions in the round

# Logarithms of the factors by which a bet multiplies the odds of acceptance: 1.2% to 600-fold.
TILTS: Floats = 0.0125 * np.exp2(np.arange(10, dtype=np.float64))
WHERES: tuple[Where, ...] = ("first", "later", "all")


def _gains(accepted: Floats | NDArray[np.bool_], beta: Floats, tilts: Floats) -> Floats:
    """Log likelihood ratios [n, J] of bets that tilt the odds of acceptance, b / (1 - b), by e^t.

    An accepted draft pays e^t / (1 - b + e^t b), a rejected one 1 / (1 - b + e^t b). A bet on more
    (t > 0) wins nothing on average wherever the truth is at most b, one on less wherever it is at
    least b; and none can lose or win more than t on a single trial, even where b is 0 or 1.
    """
    gains: Floats = np.multiply.outer(accepted, tilts) - np.log1p(
        np.multiply.outer(beta, np.expm1(tilts))
    )
    return gains


class AcceptanceTest:
    """Sequential bets on Bernoulli trials of given beta, by position in the round.

    One e-process a direction and set of positions (``more`` or ``less``; ``first``, ``later``,
    ``all``): the mean of the wealth of ``TILTS``. Each has level ``alpha`` by itself, looks after
    every update, and may be stopped or continued at will (Ville 1939).

    Parameters
    ----------
    alpha : float

    Attributes
    ----------
    counts : dict of int to list
        By position: trials, how many were accepted, and how many beta expects.
    """

    def __init__(self, alpha: float) -> None:
        check_level(alpha)
        self.alpha = alpha
        self.counts: dict[int, list[float]] = {}
        self._wealths: dict[int, Floats] = {}  # log, [2, J]: more, then less
        self._largest = {f"{d} {w}": 0.0 for d in ("more", "less") for w in WHERES}

    def update(self, trials: Trials, slack: float = 0.0) -> None:
        """Bet on these trials.

        Parameters
        ----------
        slack : float
            How far numerics may have moved beta: each direction bets against the end of
            [beta - slack, beta + slack] that is in the decoder's favour.
        """
        if not 0 <= slack < 1:
            raise ValueError(f"slack is {slack}: it must be in [0, 1)")
        more = _gains(trials.accepted, np.minimum(trials.beta + slack, 1), TILTS)
        less = _gains(trials.accepted, np.maximum(trials.beta - slack, 0), -TILTS)
        for position in np.unique(trials.position).tolist():
            here = trials.position == position
            won = np.stack([more[here].sum(0), less[here].sum(0)])
            self._wealths[position] = self._wealths.get(position, 0.0) + won
            seen = (here.sum(), trials.accepted[here].sum(), trials.beta[here].sum())
            old = self.counts.get(position, [0, 0, 0.0])
            self.counts[position] = [o + s.item() for o, s in zip(old, seen, strict=True)]
        for direction in ("more", "less"):
            for where in WHERES:
                name = f"{direction} {where}"
                now = self.log_wealth(direction, where)
                self._largest[name] = max(self._largest[name], now)

    def _chosen(self, where: Where) -> list[int]:
        return [p for p in sorted(self.counts) if where == "all" or (where == "first") == (p == 0)]

    def log_wealth(self, direction: Direction, where: Where) -> float:
        """Of the mixture, now. Bets on different positions multiply: all are one sequence."""
        zero = np.zeros((2, len(TILTS)))
        total = sum((self._wealths[p] for p in self._chosen(where)), zero)
        row = total[0 if direction == "more" else 1]
        return _mixture(row)

    def rejects(self, direction: Direction, where: Where) -> bool:
        """Whether acceptance is proven to be more, or less, than beta there."""
        return self._largest[f"{direction} {where}"] >= -math.log(self.alpha)

    def totals(self, where: Where) -> tuple[int, int, float]:
        """Trials, how many were accepted, and how many beta expects."""
        chosen = [self.counts[p] for p in self._chosen(where)]
        trials, accepted, expected = (sum(c[i] for c in chosen) for i in range(3))
        return int(trials), int(accepted), float(expected)

    def ratio(self, where: Where) -> tuple[float, float]:
        """Confidence sequence on true over expected acceptance, both as means of these trials.

        Holds at all times at once with probability 1 - alpha, whatever the chances of the single
        trials. For tilts t the products of e^(t x) / e^(a (e^t - 1)) are supermartingales, as
        1 + y <= e^y, and depend on the chances a by their sum alone; the same for rejections.
        """
        trials, accepted, expected = self.totals(where)
        if not expected > 0:
            return 0.0, math.inf
        up, down = np.expm1(TILTS), -np.expm1(-TILTS)
        threshold = math.log(2 / self.alpha)  # half for either end

        def beyond(total: float) -> float:  # grows with the sum of chances
            bets = (
                down * total - TILTS * accepted,
                TILTS * (trials - accepted) - up * (trials - total),
            )
            return _mixture(*bets) - threshold

        def short(total: float) -> float:  # falls with it
            bets = (
                TILTS * accepted - up * total,
                down * (trials - total) - TILTS * (trials - accepted),
            )
            return threshold - _mixture(*bets)

        low, high = _crossing(short, trials, 0.0), _crossing(beyond, trials, float(trials))
        return low / expected, high / expected

    def by_position(self) -> dict[str, dict[str, float]]:
        """Trials, rate of acceptance and its expectation, in JSON types."""
        return {
            str(p): {"trials": n, "accepted": round(a / n, 4), "expected": round(e / n, 4)}
            for p, (n, a, e) in sorted(self.counts.items())
        }

    def state(self) -> dict[str, Any]:
        """All that ``resume`` needs, in JSON types."""
        return {
            "tilts": TILTS.tolist(),
            "counts": {str(p): list(c) for p, c in self.counts.items()},
            "log_wealths": {str(p): w.tolist() for p, w in self._wealths.items()},
            "largest": dict(self._largest),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises
        ------
        ValueError
            If it is of other bets.
        """
        if state["tilts"] != TILTS.tolist():
            raise ValueError("a saved state of other bets than these")
        self.counts = {int(p): list(c) for p, c in state["counts"].items()}
        self._wealths = {int(p): np.array(w) for p, w in state["log_wealths"].items()}
        self._largest = dict(state["largest"])


def _mixture(*bets: Floats) -> float:
    """Log mean of wealths whose logarithms are given."""
    every = np.concatenate(bets)
    return float(np.logaddexp.reduce(every)) - math.log(len(every))


def _crossing(rises: Callable[[float], float], trials: int, otherwise: float) -> float:
    """Where a rising function on [0, trials] is zero, if it is anywhere."""
    if rises(0.0) >= 0 or rises(float(trials)) <= 0:
        return otherwise
    return float(optimize.brentq(rises, 0.0, trials))


def excess(beta: Floats, relative: float) -> Floats:
    """Chances of a decoder that accepts ``relative`` oftener than beta [n], 1 at most."""
    alternative: Floats = np.minimum(1, (1 + relative) * np.asarray(beta, dtype=np.float64))
    return alternative


def _growth(beta: Floats, alternative: Floats, tilts: Floats) -> tuple[Floats, Floats]:
    """Mean and variance [J] of what a trial adds to each log wealth, over contexts and chance."""
    b, a = probabilities(beta, "beta"), probabilities(alternative, "the alternative")
    if len(b) < 1 or a.shape != b.shape:
        raise ValueError(f"{len(a)} chances for {len(b)} trials: one each, and at least one")
    won, lost = (_gains(np.full(len(b), x), b, tilts) for x in (1.0, 0.0))
    chance = a[:, None]
    mean: Floats = (chance * won + (1 - chance) * lost).mean(0)
    square: Floats = (chance * won**2 + (1 - chance) * lost**2).mean(0)
    return mean, np.maximum(square - mean**2, 0)


def trials_needed(
    beta: Floats, alternative: Floats, alpha: float, power: float = 0.99, slack: float = 0.0
) -> float:
    """Trials until the bets on more than beta [n] reject with probability ``power``.

    Parameters
    ----------
    beta, alternative : ndarray [n]
        Contexts as they come: what is expected there, and with what chance trials are accepted.
    slack : float
        Of ``AcceptanceTest.update``.

    Notes
    -----
    The sum of many gains is nearly normal; n mean - z sqrt(n variance) = threshold is solved for
    the tilt that gets there first, which has to make up for the others' share of the mixture.
    Infinite where the two do not differ.
    """
    check_level(alpha)
    mean, variance = _growth(np.minimum(beta + slack, 1), alternative, TILTS)
    mean, variance = mean[mean > 1e-12], variance[mean > 1e-12]
    if not len(mean):
        return math.inf
    threshold = math.log(len(TILTS) / alpha)
    spread = stats.norm.ppf(power) * np.sqrt(variance)
    root = (spread + np.sqrt(spread**2 + 4 * mean * threshold)) / (2 * mean)
    return float((root**2).min())


def smallest_excess(
    beta: Floats, trials: int, alpha: float, power: float = 0.99, slack: float = 0.0
) -> float:
    """Smallest relative excess that so many trials show; infinite if they show none.

    Parameters
    ----------
    beta : ndarray [n]
        Contexts as they come.
    slack : float
        Of ``AcceptanceTest.update``: less than that is not shown by any number of trials.
    """
    low, high = math.log(1e-5), math.log(1e3)

    def missing(log_excess: float) -> float:  # falls; its logarithm, as it spans decades
        needed = trials_needed(beta, excess(beta, math.exp(log_excess)), alpha, power, slack)
        return math.log(min(needed, 1e300) / trials)

    if trials < 1 or missing(high) > 0:
        return math.inf
    return math.exp(optimize.brentq(missing, low, high, xtol=1e-3))
