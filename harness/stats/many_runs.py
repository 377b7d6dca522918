"""The e-process and the certificates over many runs at once.

The same sums as ``EProcess`` and ``Certificate`` make, with a leading axis of runs: one run costs
little but overhead. ``harness.stats.false_alarms`` holds them to those two as it goes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.stats.certificate import Certificate, Family
from harness.stats.eprocess import LEARNED_AT_ONCE, EProcess
from harness.stats.experts import log_ratios
from harness.stats.right_decoders import Runs
from harness.stats.rows import Rows
from harness.stats.tilt import MOST_THETA, Tilt

LOOK = 16  # tokens between two looks at a certificate


def rows_of(contexts: Rows, runs: Runs, run: int, q: bool, own: Tensor | None = None) -> Rows:
    """The tokens of one run, as an e-process takes them."""
    at = runs.contexts[run]
    p, drafted, previous, replayed = (
        None if x is None else x[at]
        for x in (contexts.p, contexts.q, contexts.previous, contexts.replayed)
    )
    assert p is not None
    return Rows(
        p,
        runs.tokens[run],
        q=drafted if q else None,
        previous=previous,
        replayed=replayed,
        own_logprobs=None if own is None else own[run],
    )


def fixed_gains(process: EProcess, contexts: Rows, runs: Runs) -> Tensor:
    """log a(x) / p(x) of the named experts of ``process``, [R, n, J]."""
    return log_ratios(process.fixed, contexts.everywhere)[runs.contexts, runs.tokens]


def tilt_gains(contexts: Rows, runs: Runs, q: bool) -> Tensor:
    """log a(x) / p(x) of a learned tilt, anew for each run: [R, n]."""
    tilt = Tilt(q)
    table = tilt.stacked(contexts.everywhere).permute(1, 2, 0).contiguous()  # [C, V, F]
    many, tokens = runs.tokens.shape
    theta = torch.zeros(many, len(tilt.features), 1, dtype=torch.float64)
    curvature = tilt.curvature.repeat(many, 1, 1)
    most = max(1, LEARNED_AT_ONCE // contexts.p.shape[1])
    gains, first = [], 0
    while first < tokens:
        part = slice(first, first + min(most, max(4, first // 4)))
        at, x = runs.contexts[:, part], runs.tokens[:, part]
        f = table[at]  # [R, s, V, F]
        tilts = (f.flatten(1, 2) @ theta).view(f.shape[:-1])
        law = contexts.p[at] * tilts.exp()
        z = law.sum(-1, keepdim=True)
        gains.append((tilts - z.log()).gather(2, x.unsqueeze(2)).squeeze(2))
        weighted = f * (law / z).unsqueeze(-1)
        expected = weighted.sum(2)  # [R, s, F]
        curvature += f.flatten(1, 2).mT @ weighted.flatten(1, 2) - expected.mT @ expected
        gradient = (table[at, x] - expected).sum(1).unsqueeze(2)
        theta = (theta + torch.linalg.solve(curvature, gradient)).clamp(-MOST_THETA, MOST_THETA)
        first = part.stop
    return torch.cat(gains, 1)


def peaks(process: EProcess, gains: Tensor) -> Tensor:
    """Largest log wealth [R] of the mixture after any token, from gains [R, n, J]."""
    return (process.log_weights + gains.cumsum(1)).logsumexp(2).amax(1).clamp(min=0)


def uppers(family: Family, contexts: Rows, runs: Runs, alpha: float) -> Tensor:
    """What a certificate of level ``alpha`` bounds the parameter by after all its looks, [R].

    Runs of a multiple of ``LOOK`` tokens.
    """
    gains = log_ratios(family.experts, contexts.everywhere)[runs.contexts, runs.tokens]
    wealth = gains.cumsum(1)[:, LOOK - 1 :: LOOK]  # [R, looks, values]
    values = torch.tensor(family.values, dtype=torch.float64)
    mixture = wealth.logsumexp(2, keepdim=True) - math.log(len(values))
    kept = mixture - wealth < -math.log(alpha)
    last = (kept * torch.arange(len(values))).amax(2).amin(1)
    return values[(last + 1).clamp(max=len(values) - 1)]


def upper(family: Family, contexts: Rows, runs: Runs, run: int, alpha: float) -> float:
    """The same of one run, by the certificate itself."""
    certificate = Certificate(family, alpha)
    rows = rows_of(contexts, runs, run, q=True)
    for first in range(0, len(rows), LOOK):
        certificate.update(rows.part(first, first + LOOK))
    return certificate.upper
