"""The learned tilt: an expert on what nobody thought of.

Its law is p(x) exp(theta . f(x)) / Z, an exponential tilt of the target's law along features f of
the token. Theta is fitted on the tokens before, never on the one that is bet on, so that the bet
is fixed in advance like any expert's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.stats.rows import Rows, View

LOWEST_LOG_P = -12.0
MOST_LOG_RATIO = 6.0
MOST_RATIO = 8.0
RIDGE = 3.0  # prior precision of theta; features are of order 1
MOST_THETA = 20.0  # a step from where the law was flat may go far: not so far that exp overflows

Feature = Callable[[View], Tensor]


def _at_least(probability: float) -> Feature:
    return lambda at: (at.p >= probability).double()


def _clipped(log_ratio: Tensor) -> Tensor:
    return log_ratio.nan_to_num(0.0).clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO) / MOST_LOG_RATIO


def _previous(at: View) -> Tensor:
    """Log ratio of the law of the token before."""
    if at.rows.previous is None:
        return torch.zeros_like(at.p)
    return _clipped(at.of(at.rows.previous).log() - at.log_p)


def _replayed(at: View) -> Tensor:
    """Whether an earlier answer to the same request said it here."""
    if at.rows.replayed is None:
        return torch.zeros_like(at.p)
    return at.equals(at.rows.replayed.unsqueeze(1)).double()


def _place(at: View) -> Tensor:
    """Where a token lies in the residual's cumulative sum: what number would have drawn it."""
    residual = at.rows.everywhere.residual
    return at.of((residual.cumsum(-1) - residual / 2 - 0.5) * (residual > 0))


TARGET: tuple[Feature, ...] = (
    lambda at: at.log_p.clamp(min=LOWEST_LOG_P) / -LOWEST_LOG_P,
    lambda at: at.best.double(),
    _at_least(0.2),
    _at_least(0.05),
    _at_least(0.01),
    _at_least(0.001),
    _previous,
    _replayed,
)
DRAFT: tuple[Feature, ...] = (
    lambda at: _clipped(at.log_q - at.log_p),
    lambda at: (at.q / at.p.clamp(min=1e-300)).clamp(max=MOST_RATIO) / MOST_RATIO,
    lambda at: (at.q > at.p).double(),
    lambda at: (at.residual >= 0.2).double(),
    lambda at: (at.q >= 0.2).double(),
    _place,
)


class Tilt:
    """Theta and what it was fitted on.

    Parameters
    ----------
    q : bool
        Whether the draft's law is known, and features of it are used.
    """

    def __init__(self, q: bool) -> None:
        self.features = (*TARGET, *(DRAFT if q else ()))
        size = len(self.features)
        self.theta = torch.zeros(size, dtype=torch.float64)
        self.curvature = RIDGE * torch.eye(size, dtype=torch.float64)

    def log_ratios(self, rows: Rows) -> Tensor:
        """log of tilted law over p, theta . f(x) - log Z: [n], or [n, V] where tokens are counted.

        Then it learns from these rows: one Newton step towards the theta under which they and all
        earlier ones are likeliest. The gradient is that of these rows at the present theta, the
        curvature the sum of all rows', each at the theta of its time: recursive least squares in
        the limit of small theta.
        """
        f = self.stacked(rows.everywhere)  # [F, n, V]
        tilts = (self.theta.to(f.device) @ f.flatten(1)).view_as(rows.p)
        tilted = rows.p * tilts.exp()
        z = tilted.sum(-1, keepdim=True)
        tilted /= z
        ratios = tilts - z.log()
        if rows.counts is None:
            at = rows.here
            ratios = torch.where(at.p > 0, at.of(ratios), 0.0).squeeze(1)
            self._learn(f, tilted, self.stacked(at).squeeze(2))
        else:
            times = rows.counts.sum(-1, keepdim=True)
            self._learn(f, tilted * times, (f * rows.counts).sum(-1), times.squeeze(1))
        return ratios

    def _learn(
        self, f: Tensor, weight: Tensor, emitted: Tensor, times: Tensor | None = None
    ) -> None:
        """Features [F, n, V], their weights [n, V] under the tilt, those of what came [F, n]."""
        weighted = f * weight
        expected = weighted.sum(-1)
        second = f.flatten(1) @ weighted.flatten(1).T
        of_means = expected if times is None else expected / times.clamp(min=1)
        self.curvature += (second - expected @ of_means.T).cpu()
        gradient = (emitted - expected).sum(1).cpu()
        step = torch.linalg.solve(self.curvature, gradient)
        self.theta = (self.theta + step).clamp(-MOST_THETA, MOST_THETA)

    def stacked(self, at: View) -> Tensor:
        """The features, [F, n, 1] here, [F, n, V] everywhere."""
        return torch.stack([feature(at) for feature in self.features])

    def state(self) -> dict[str, Any]:
        """What ``resume`` continues from: JSON types."""
        return {"theta": self.theta.tolist(), "curvature": self.curvature.tolist()}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; ValueError if its features are other ones."""
        if len(state["theta"]) != len(self.features):
            raise ValueError(
                f"a state of {len(state['theta'])} features, this tilt has {len(self.features)}"
            )
        self.theta = torch.tensor(state["theta"], dtype=torch.float64)
        self.curvature = torch.tensor(state["curvature"], dtype=torch.float64)
