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
RIDGE = 4.0  # prior precision of theta; features are of order 1

Feature = Callable[[View], Tensor]


def _log_ratio(at: View) -> Tensor:
    ratio = (at.q.clamp(min=1e-300) / at.p.clamp(min=1e-300)).log()
    return ratio.clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO) / MOST_LOG_RATIO


TARGET: tuple[Feature, ...] = (
    lambda at: at.log_p.clamp(min=LOWEST_LOG_P) / -LOWEST_LOG_P,
    lambda at: at.best.double(),
    lambda at: (at.p >= at.rows.likeliest(3)).double(),
    lambda at: (at.p >= at.rows.likeliest(10)).double(),
    lambda at: (at.p >= at.rows.likeliest(40)).double(),
)
DRAFT: tuple[Feature, ...] = (
    _log_ratio,
    lambda at: (at.q / at.p.clamp(min=1e-300)).clamp(max=MOST_RATIO) / MOST_RATIO,
    lambda at: (at.q > at.p).double(),
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

    def log_ratios(self, at: View) -> Tensor:
        """log of tilted law over p: theta . f(x) - log Z, [n] here, [n, V] everywhere."""
        everywhere = self._stacked(at.rows.everywhere)
        theta = self.theta.to(at.p.device)
        z = (at.rows.p * (everywhere @ theta).exp()).sum(-1, keepdim=True).log()
        if at is at.rows.here:
            ratio = (self._stacked(at) @ theta - z).squeeze(1)
            return torch.where(at.p.squeeze(1) > 0, ratio, 0.0)
        return everywhere @ theta - z

    def learn(self, rows: Rows) -> None:
        """One Newton step towards the theta under which these and all earlier rows are likeliest.

        The gradient is that of these rows at the present theta, the curvature the sum of all
        rows', each at the theta of its time: recursive least squares in the limit of small theta.
        """
        f = self._stacked(rows.everywhere)
        tilted = rows.p * (f @ self.theta.to(f.device)).exp()
        tilted /= tilted.sum(-1, keepdim=True)
        mean = (tilted.unsqueeze(1) @ f).squeeze(1)  # [n, F]
        if rows.counts is None:
            seen, times = self._stacked(rows.here).squeeze(1), torch.ones_like(tilted[:, 0])
        else:
            seen, times = (rows.counts.unsqueeze(1) @ f).squeeze(1), rows.counts.sum(-1)
        weight = (tilted * times.unsqueeze(1)).unsqueeze(-1)
        second = f.flatten(0, 1).T @ (f * weight).flatten(0, 1)
        covariance = second - mean.T @ (mean * times.unsqueeze(1))
        gradient = seen.sum(0) - (mean * times.unsqueeze(1)).sum(0)
        self.curvature += covariance.cpu()
        self.theta = self.theta + torch.linalg.solve(self.curvature, gradient.cpu())

    def _stacked(self, at: View) -> Tensor:
        return torch.stack([feature(at) for feature in self.features], -1)

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
