"""Laws of the next token under named faults of the acceptance step.

Each takes the target's law p and the draft's q, [..., V], and gives the law that a decoder with
that fault draws a drafted position from. They set the size of effects to be caught, and name
the likely fault when one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Fault = Callable[[Tensor, Tensor], Tensor]


def leak(p: Tensor, q: Tensor, rate: float) -> Tensor:
    """A share of tokens comes from the draft unverified; at rate 1: accept-all."""
    return (1 - rate) * p + rate * q


def over_accept(p: Tensor, q: Tensor, factor: float) -> Tensor:
    """Accepted with probability min(1, factor p/q), recovered from the right residual."""
    kept = torch.minimum(q, factor * p)
    left = (p - q).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    recovered = torch.where(total > 0, left / total.clamp(min=1e-300), p)
    return kept + _rejected(kept) * recovered


def resample_from_target(p: Tensor, q: Tensor) -> Tensor:
    """A rejected token is replaced by a draw from p instead of the residual."""
    kept = torch.minimum(p, q)
    return kept + _rejected(kept) * p


def sharpen(p: Tensor, q: Tensor, rate: float) -> Tensor:
    """A share of tokens is the most likely one instead of a draw, whatever the draft."""
    best = torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype)
    return (1 - rate) * p + rate * best


def _rejected(kept: Tensor) -> Tensor:
    """Probability that nothing was kept; rounding must not make it negative."""
    return (1 - kept.sum(-1, keepdim=True)).clamp(min=0)


NAMED: Mapping[str, Fault] = {
    "drafted tokens are accepted unverified": lambda p, q: leak(p, q, 1.0),
    "3 in 10 tokens come from the draft": lambda p, q: leak(p, q, 0.3),
    "rejected tokens are drawn from the target instead of the residual": resample_from_target,
    "over-acceptance by a factor of 1.1": lambda p, q: over_accept(p, q, 1.1),
    "over-acceptance by a factor of 1.5": lambda p, q: over_accept(p, q, 1.5),
    "1 in 10 tokens is the most likely one instead of a draw": lambda p, q: sharpen(p, q, 0.1),
}
