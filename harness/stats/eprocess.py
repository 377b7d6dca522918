"""The e-process: bets against the target's law, valid whenever one looks.

The wealth of expert j after t tokens is E_j = prod a_j(x_t) / p_t(x_t). If every token is a draw
from p_t, E_j is a nonnegative martingale that starts at 1, and so is the weighted mean E of all of
them; by Ville's inequality (1939) P(E ever reaches 1 / alpha) <= alpha. One may look after every
token, stop when one likes, and go on later (Ramdas, Gruenwald, Vovk, Shafer 2023, "Game-theoretic
statistics and safe anytime-valid inference").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.stats.experts import Expert, log_ratios, log_weights
from harness.stats.levels import check_level
from harness.stats.rows import Rows, View
from harness.stats.tilt import Tilt

TILT = Expert("learned tilt", "a tilt along the features of harness.stats.tilt", lambda at: at.p)

LEAD = math.log(20)  # nats; more tokens than it takes to reject may be needed to say why
LEARNED_AT_ONCE = 1 << 15  # probabilities: the tilt's features of them fit a cache


def numbers(values: Tensor) -> list[float | None]:
    """Of a tensor of one dimension, in JSON types: None for -inf, which JSON has no word for."""
    return [None if x == -math.inf else x for x in values.tolist()]


def from_numbers(values: Sequence[float | None]) -> Tensor:
    """The tensor that ``numbers`` was given."""
    return torch.tensor([-math.inf if x is None else x for x in values], dtype=torch.float64)


@dataclass(frozen=True)
class Decision:
    """What an e-process says at a moment.

    Attributes
    ----------
    rejected : bool
    log_wealth : float
        The mixture's, natural logarithm, after slack; its largest value where slack is none.
    tokens : int
        Seen so far.
    crossed_at : int or None
        Tokens after which the wealth was 1 / alpha for the first time; None where wealth was
        handed back, which is done with hindsight.
    impossible : int
        Tokens of probability zero: each is proof by itself.
    expert : Expert
        The one that holds the most wealth.
    expert_log_wealth : float
    lead : float
        By how much it leads the best expert of any other family, in nats.
    """

    rejected: bool
    log_wealth: float
    tokens: int
    crossed_at: int | None
    impossible: int
    expert: Expert
    expert_log_wealth: float
    lead: float

    @property
    def log10_wealth(self) -> float:
        """The wealth as a power of ten, to be printed."""
        return round(self.log_wealth / math.log(10), 2)

    @property
    def settled(self) -> bool:
        """Whether the fault may be named: no other family is within ``LEAD``."""
        return self.lead >= LEAD


class EProcess:
    """Wealth of every expert, and of their mixture.

    Parameters
    ----------
    experts : sequence of Expert
        Those whose ``needs`` the rows will meet.
    q : bool
        Whether the draft's law is known; ``experts`` that need it are left out if not.
    tilt : bool
        Whether the learned tilt takes part.
    alpha : float
        Error level.
    """

    def __init__(
        self, experts: Sequence[Expert], *, q: bool, tilt: bool = True, alpha: float
    ) -> None:
        check_level(alpha)
        self.alpha = alpha
        self.fixed = tuple(e for e in experts if q or "q" not in e.needs)
        self.tilt = Tilt(q) if tilt else None
        self.experts = (*self.fixed, *((TILT,) if tilt else ()))
        if not self.experts:
            raise ValueError("an e-process of no experts")
        self.log_weights = log_weights([e.family for e in self.experts])
        self.log_wealths = torch.zeros(len(self.experts), dtype=torch.float64)
        self.tokens = 0
        self.impossible = 0
        self.near = 0
        self.explained = torch.zeros(len(self.experts), dtype=torch.float64)
        self.largest = 0.0
        self.crossed_at: int | None = None
        self._table: tuple[Tensor, Tensor] | None = None  # contexts that come again, and ratios
        self.groups: dict[str, dict[int, Tensor]] = {}  # log wealths, then tokens: [J + 1]

    @property
    def log_wealth(self) -> float:
        """Of the mixture, now."""
        return float((self.log_weights + self.log_wealths).logsumexp(0))

    def update(self, rows: Rows, slack: float = 0.0) -> Tensor:
        """Bet on the tokens of these rows, one after another.

        Parameters
        ----------
        slack : float
            Where the rows have the decoder's own log probabilities: how far they may be from the
            oracle's, in nats. Up to that they are believed, and the ratio is taken against them.

        Returns
        -------
        Tensor [n, J], float64
            log a(x) / p(x) of each expert and token, before slack; [1, J] of all together where
            tokens are counted.
        """
        if rows.counts is not None:
            return self._update_counted(rows)
        zero = rows.here.p.squeeze(1) == 0
        ratios = self._gains(rows).masked_fill(zero.unsqueeze(1), 0.0)
        gains = ratios.cpu()
        if rows.own_logprobs is not None and slack > 0:
            off = (rows.own_logprobs - rows.here.log_p.squeeze(1)).masked_fill(zero, 0.0)
            gains = (ratios - off.nan_to_num(0.0).clamp(-slack, slack).unsqueeze(1)).cpu()
        near = zero & rows.near if rows.near is not None else torch.zeros_like(zero)
        path = gains.cumsum(0) + self.log_wealths
        self._look((self.log_weights + path).logsumexp(1))
        self.log_wealths = path[-1].clone()
        self.tokens += len(rows)
        self.impossible += int((zero & ~near).sum())
        self.near += int(near.sum())
        if bool((zero & ~near).any()):
            self._explain(rows.here, (zero & ~near).unsqueeze(1))
        for name, labels in rows.groups.items():
            self._group(name, labels.cpu(), gains)
        return ratios.cpu()

    def _gains(self, rows: Rows) -> Tensor:
        """log a(x) / p(x), [n, J]; the tilt learns as it goes."""
        gains = log_ratios(self.fixed, rows.here)
        if self.tilt is None:
            return gains
        tilted, first = [], 0
        most = max(1, LEARNED_AT_ONCE // rows.p.shape[1])
        while first < len(rows):
            # Often while little is known, later when the evidence has grown by a quarter.
            step = min(most, max(4, (self.tokens + first) // 4))
            tilted.append(self.tilt.log_ratios(rows.part(first, first + step)))
            first += step
        return torch.cat([gains, torch.cat(tilted).unsqueeze(1)], 1)

    def _look(self, path: Tensor) -> None:
        """Note where the mixture's log wealth [n] crosses, and its largest value."""
        self.largest = max(self.largest, float(path.max()))
        threshold = -math.log(self.alpha)
        if self.crossed_at is None and self.largest >= threshold:
            self.crossed_at = self.tokens + 1 + int((path >= threshold).int().argmax())

    def _update_counted(self, rows: Rows) -> Tensor:
        """The same for tokens that are counted by context: one look, after all of them."""
        assert rows.counts is not None
        counts = rows.counts
        if self._table is None or self._table[0] is not rows.p:
            self._table = rows.p, log_ratios(self.fixed, rows.everywhere)
        table = self._table[1]
        if self.tilt is not None:
            table = torch.cat([table, self.tilt.log_ratios(rows).unsqueeze(-1)], -1)
        seen = (counts > 0) & (rows.p > 0)
        gains = torch.where(seen.unsqueeze(-1), table * counts.unsqueeze(-1), 0.0).sum((0, 1))
        self.log_wealths = self.log_wealths + gains
        self.tokens += int(counts.sum())
        impossible = counts * (rows.p == 0)
        self.impossible += int(impossible.sum())
        if bool(impossible.any()):
            self._explain(rows.everywhere, impossible)
        self.largest = max(self.largest, self.log_wealth)
        if self.crossed_at is None and self.log_wealth >= -math.log(self.alpha):
            self.crossed_at = self.tokens
        return gains.unsqueeze(0)

    def _explain(self, at: View, impossible: Tensor) -> None:
        """Note which experts allow the impossible tokens, each as often as it was emitted."""
        allowed = [((e.law(at) > 0) * impossible).sum() for e in self.experts]
        self.explained += torch.stack(allowed).double().cpu()

    def _group(self, name: str, labels: Tensor, gains: Tensor) -> None:
        sums = self.groups.setdefault(name, {})
        counted = torch.cat([gains, torch.ones(len(gains), 1, dtype=gains.dtype)], 1)
        for label in sorted(set(labels.tolist())):
            if label < 0:
                continue
            mine = counted[labels == label].sum(0)
            sums[label] = sums[label] + mine if label in sums else mine

    def decision(self, handed_back: Tensor | None = None) -> Decision:
        """What may be said now, at the error level that was given.

        Parameters
        ----------
        handed_back : Tensor [J], optional
            Log wealth to subtract from each expert's: what the decoder's plain arm, to which
            nothing but numerics can have happened, lets it win.
        """
        wealths = self.log_wealths
        log_wealth = max(self.largest, self.log_wealth)
        if handed_back is not None:
            wealths = wealths - handed_back.clamp(min=0)
            log_wealth = float((self.log_weights + wealths).logsumexp(0))
        # Impossible tokens first: what does not explain them is out, whatever it has won.
        best = int((wealths + 1e6 * (self.explained - self.explained.max())).argmax())
        others = [
            float(wealth)
            for expert, wealth in zip(self.experts, wealths, strict=True)
            if expert.family != self.experts[best].family
        ]
        return Decision(
            rejected=log_wealth >= -math.log(self.alpha) or self.impossible > 0,
            log_wealth=log_wealth,
            tokens=self.tokens,
            crossed_at=self.crossed_at if handed_back is None else None,
            impossible=self.impossible,
            expert=self.experts[best],
            expert_log_wealth=float(wealths[best]),
            lead=float(wealths[best]) - max(others, default=-math.inf),
        )

    def where(self) -> dict[str, dict[int, tuple[int, float]]]:
        """By group and label: tokens, and the log wealth that the leading expert made there."""
        best = int(self.log_wealths.argmax())
        return {
            name: {label: (int(s[-1]), float(s[best])) for label, s in sorted(sums.items())}
            for name, sums in self.groups.items()
        }

    def state(self) -> dict[str, Any]:
        """All that ``resume`` needs, in JSON types."""
        return {
            "experts": [e.says for e in self.experts],
            "log_wealths": numbers(self.log_wealths),
            "tokens": self.tokens,
            "impossible": self.impossible,
            "near": self.near,
            "explained": self.explained.tolist(),
            "largest": self.largest,
            "crossed_at": self.crossed_at,
            "groups": {
                name: {str(label): numbers(s) for label, s in sums.items()}
                for name, sums in self.groups.items()
            },
            "tilt": self.tilt.state() if self.tilt else None,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises
        ------
        ValueError
            If it is of other experts.
        """
        if state["experts"] != [e.says for e in self.experts]:
            raise ValueError("a saved state of other experts than these")
        self.log_wealths = from_numbers(state["log_wealths"])
        for name in ("tokens", "impossible", "near", "largest", "crossed_at"):
            setattr(self, name, state[name])
        self.explained = torch.tensor(state["explained"], dtype=torch.float64)
        self.groups = {
            name: {int(k): from_numbers(v) for k, v in sums.items()}
            for name, sums in state["groups"].items()
        }
        if self.tilt is not None:
            self.tilt.resume(state["tilt"])
