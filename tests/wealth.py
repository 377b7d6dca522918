"""Experts and tokens for tests of the e-process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.stats import faults
from harness.stats.eprocess import EProcess
from harness.stats.experts import NAMED, Expert
from harness.stats.rows import Rows
from harness.stats.simulated import contexts

NAN = float("nan")
P, Q = [0.8, 0.2], [0.4, 0.6]
HALF = Expert("leak", "half", lambda at: faults.leak(at, 0.5), frozenset({"q"}))  # (.6, .4)
FLAT = Expert("flat", "any", lambda at: faults.flatten(at, 1.0))  # (.5, .5)
DRAFT = Expert("draft", "all", lambda at: faults.leak(at, 1.0), frozenset({"q"}))
ONLY_BEST = Expert("best", "the likeliest", lambda at: faults.sharpen(at, 1.0))
BARE = [e for e in NAMED if e.needs <= {"q"}]


def binary(tokens: Sequence[int], **more: Any) -> Rows:
    """These tokens, each after the laws ``P`` and ``Q``."""
    n = len(tokens)
    return Rows.of(torch.tensor([P] * n), tokens, torch.tensor([Q] * n), **more)


def process(*experts: Expert, tilt: bool = False, alpha: float = 0.01, q: bool = True) -> EProcess:
    return EProcess(experts, q=q, tilt=tilt, alpha=alpha)


def simulated(count: int, seed: int = 0) -> Rows:
    """Tokens from the draft after contexts of a larger vocabulary, with all that experts need."""
    rows = contexts()
    generator = torch.Generator().manual_seed(seed)
    where = torch.randint(len(rows), (count,), generator=generator)
    assert rows.q is not None
    assert rows.previous is not None
    assert rows.replayed is not None
    return Rows(
        rows.p[where],
        torch.multinomial(rows.q[where], 1, generator=generator).squeeze(1),
        rows.q[where],
        previous=rows.previous[where],
        replayed=rows.replayed[where],
    )


def cut(rows: Rows, first: int, last: int) -> Rows:
    """Some of the rows with all that there is about them."""
    picked = {
        name: None if value is None else value[first:last]
        for name in ("p", "tokens", "q", "previous", "replayed", "own_logprobs", "near")
        for value in [getattr(rows, name)]
    }
    groups = {name: labels[first:last] for name, labels in rows.groups.items()}
    return Rows(**picked, groups=groups)


def border(tokens: Sequence[int], near: Sequence[bool] | None = None) -> Rows:
    """The target allows token 0 alone, the draft both."""
    n = len(tokens)
    more = {} if near is None else {"near": torch.tensor(near)}
    return Rows.of(torch.tensor([[1.0, 0.0]] * n), tokens, torch.tensor([[0.5, 0.5]] * n), **more)
