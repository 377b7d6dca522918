"""Tokens that each statistic needs to find a simulated fault: one run, one number."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize

from harness.stats import chi_square, experts, pit
from harness.stats.eprocess import EProcess
from harness.stats.simulated import Simulated, observed
from harness.stats.tilt import Tilt

FEWEST = 10  # tokens before the first look
GROWTH = 1.05  # from one look to the next: what a detection may be reported too late
MOST = 1_000_000  # tokens of a chi-square test


def looks(most: float) -> Iterator[int]:
    """Sample sizes at which a run is looked at, each ``GROWTH`` times the one before."""
    total = float(FEWEST)
    while total <= most:
        yield round(total)
        total = max(total + 1, total * GROWTH)


def draws(fault: Simulated, seed: int, most: float) -> Iterator[NDArray[np.int64]]:
    """The tokens that came between one look and the next, counted by context."""
    rng, done = np.random.default_rng(seed), 0
    for total in looks(most):
        if total > done:  # a block is drawn whole
            counts = fault.draw(rng, total - done)
            done += int(counts.sum())
            yield counts


def sequential(
    fault: Simulated, seed: int, alpha: float, most: float, *, q: bool, named: bool
) -> tuple[float, str]:
    """Tokens until the e-process rejects (infinity: not within ``most``), and what it names."""
    chosen = (*experts.NAMED, *experts.of_sampling(fault.settings)) if named else ()
    process = EProcess([e for e in chosen if _met(e, fault)], q=q, alpha=alpha)
    detected = math.inf
    decision = process.decision()
    for counts in draws(fault, seed, 2 * most):
        process.update(observed(fault.rows, counts, q))
        decision = process.decision()
        if decision.rejected:
            detected = min(detected, decision.tokens)
        # To say what it is may take some more: as many again at the most.
        if decision.rejected and (decision.settled or decision.tokens >= 2 * detected):
            break
        if decision.tokens >= most and not decision.rejected:
            break
    return detected, decision.expert.family


def _met(expert: experts.Expert, fault: Simulated) -> bool:
    return all(getattr(fault.rows, need) is not None for need in expert.needs)


def single_prompt(fault: Simulated, seed: int, alpha: float) -> float:
    """Tokens until a chi-square test on the answers to one prompt rejects."""
    rng = np.random.default_rng(seed)
    prompt = seed % len(fault.joint)
    law, target = fault.joint[prompt], fault.joint_target[prompt]
    counts, done = np.zeros(len(law), dtype=np.int64), 0
    for total in looks(MOST / fault.tokens_per_cell):
        counts += rng.multinomial(total - done, law)
        done = total
        if counts[target == 0].any() or chi_square.goodness_of_fit(counts, target).p_value <= alpha:
            return float(total * fault.tokens_per_cell)
    return math.inf


def pooled_pit(fault: Simulated, seed: int, alpha: float) -> float:
    """Tokens until a chi-square test on the PIT values of all tokens together rejects."""
    rng = np.random.default_rng(seed)
    p = fault.rows.p.numpy()
    contexts, tokens = map(np.ravel, np.indices(p.shape))
    below = pit.pit(p[contexts], tokens, np.zeros(p.size)).reshape(p.shape)
    binned, done = np.zeros(pit.BINS, dtype=np.int64), 0
    for counts in draws(fault, seed, MOST):
        done += int(counts.sum())
        if counts[p == 0].any():
            return float(done)
        widths = np.repeat(p.ravel(), counts.ravel())
        values = np.repeat(below.ravel(), counts.ravel()) + rng.random(len(widths)) * widths
        binned += pit.binned(values.clip(max=1.0))
        if chi_square.goodness_of_fit(binned, pit.uniform()).p_value <= alpha:
            return float(done)
    return math.inf


def best_tilt(fault: Simulated) -> float:
    """Nats per token that the best tilt without features of the draft would win, in hindsight."""
    rows = observed(fault.rows, fault.expected / fault.expected.sum(), q=False)
    f = Tilt(q=False).stacked(rows.everywhere).flatten(1).numpy()  # [F, C V]
    counts, log_p = rows.counts, rows.p.log()
    assert counts is not None

    def loss(theta: NDArray[np.float64]) -> float:
        tilts = torch.from_numpy(theta @ f).view_as(log_p)
        ratios = tilts - (log_p + tilts).logsumexp(-1, keepdim=True)
        return -float(torch.where(counts > 0, counts * ratios, 0.0).sum())

    found = optimize.minimize(
        loss, np.zeros(len(f)), method="L-BFGS-B", bounds=[(-99, 99)] * len(f)
    )
    return max(1e-12, -float(found.fun))
