"""Faulty decoders as exact laws over a fixed set of contexts: what the statistics are measured on.

Nothing is generated: tokens are drawn from the law that a decoder with the fault has, so the
information in each token, and with it the bound on what any test can do, is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.contract import Request, Sampling
from harness.stats import faults
from harness.stats.faults import Law
from harness.stats.rows import Rows, View
from reference_impl import sampling

CONTEXTS, VOCAB = 200, 64
DRAFT_CONFIDENCE, DRAFT_NOISE = 0.7, 1.0  # a smaller model is less sure, and errs
TEMPERATURE = Sampling(temperature=0.7)
FILTERED = Sampling(temperature=0.8, top_k=20, top_p=0.9)


def contexts(seed: int = 1, settings: Sampling | None = None) -> Rows:
    """``CONTEXTS`` contexts of a target and a draft that accept some 0.6 of each other's tokens.

    Parameters
    ----------
    settings : Sampling, optional
        Temperature 1 without filters, if not given.

    Returns
    -------
    Rows
        Without tokens; the row before has the ``previous`` law, and a draw from p is ``replayed``.
    """
    settings = settings or Sampling(temperature=1.0)
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(CONTEXTS, VOCAB, generator=generator, dtype=torch.float64)

    logits = 2 * normal()
    drafted = DRAFT_CONFIDENCE * logits + DRAFT_NOISE * normal()
    request = Request(prompt=(0,), max_new_tokens=1, sampling=settings)
    parameters = sampling.Parameters.of([request] * CONTEXTS, VOCAB)
    p = sampling.normalise(logits, parameters)
    return Rows(
        p,
        q=sampling.normalise(drafted, parameters),
        previous=p.roll(1, 0),
        replayed=torch.multinomial(p, 1, generator=generator).squeeze(1),
        scores=logits,
        parameters=parameters,
    )


@dataclass(frozen=True)
class Simulated:
    """A decoder with a known fault.

    Attributes
    ----------
    name : str
    family : str
        Family of the expert that should name it; empty where it has none.
    rows : Rows
        Contexts [C, V].
    draw : callable
        (random generator, n) -> counts [C, V] of about n tokens.
    expected : ndarray
        What they are proportional to, on average.
    information : float
        KL(fault || target) in nats per token; infinite if it emits impossible tokens.
    joint : ndarray
        Its law over the cells that a single-prompt chi-square test looks at, [prompts, cells].
    joint_target : ndarray
        The target's.
    has_expert : bool
        Whether some expert of the family has about this law, and not only something like it.
    """

    name: str
    family: str
    settings: Sampling
    rows: Rows
    draw: Callable[[np.random.Generator, int], NDArray[np.int64]]
    expected: NDArray[np.float64]
    information: float
    joint: NDArray[np.float64]
    joint_target: NDArray[np.float64]
    has_expert: bool
    tokens_per_cell: int = 1


def one_token(
    name: str,
    law: Law,
    family: str = "",
    settings: Sampling | None = None,
) -> Simulated:
    """A fault of single tokens: every token, in a random context, follows ``law``."""
    rows = contexts(settings=settings)
    wrong = law(rows.everywhere)
    wrong = wrong / wrong.sum(-1, keepdim=True)
    table = wrong.numpy()

    def draw(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        per_context = rng.multinomial(n, np.full(len(table), 1 / len(table)))
        return rng.multinomial(per_context, table)

    settings = settings or Sampling(temperature=1.0)
    information = float(_kl(wrong, rows.p).mean())
    return Simulated(
        name, family, settings, rows, draw, table, information, table, rows.p.numpy(),
        bool(family),
    )  # fmt: skip


def _kl(wrong: Tensor, right: Tensor) -> Tensor:
    return torch.where(wrong > 0, wrong * (wrong / right).log(), 0.0).sum(-1)


# --- faults without an expert ---------------------------------------------------------------------


def coarse_proposal(at: View) -> Tensor:
    """Drawn from softmax of logits rounded to one decimal, judged by the exact q."""
    drawn = faults.normalised(at.rows, lambda view: ((view.log_q * 10).round() / 10).exp())
    return faults.mismatched(at, drawn)


def coarse_coin(at: View, cells: int = 64) -> Tensor:
    """u <= p/q with u a multiple of 1 / cells: also accepts what is impossible."""

    def kept(view: View) -> Tensor:
        ratio = view.p / view.q.clamp(min=1e-300)
        return view.q * (((cells * ratio).floor() + 1) / cells).clamp(max=1)

    return kept(at) + (1 - at.rows.sum(kept)) * at.residual


def one_number(at: View) -> Tensor:
    """The number that rejected the draft also picks the recovered token."""
    assert at is at.rows.everywhere
    ratio = (at.p / at.q.clamp(min=1e-300)).clamp(max=1).unsqueeze(2)  # of the draft, [n, V, 1]
    upper = at.residual.cumsum(-1).unsqueeze(1)
    lower = upper - at.residual.unsqueeze(1)
    above = (upper.maximum(ratio) - lower.maximum(ratio)) * at.q.unsqueeze(2)
    return torch.minimum(at.p, at.q) + above.sum(1)


# --- faults of a block ----------------------------------------------------------------------------

BLOCK_VOCAB, BLOCK_TOKENS = 8, 3


def block(
    name: str,
    law: Callable[[Tensor, Tensor], Tensor],
    family: str = "",
) -> Simulated:
    """A fault that shows in blocks of K = 2: three tokens from the start of a round.

    Target and draft are Markov chains p, q [previous, next]; ``law`` gives the joint law of the
    three tokens [V, V, V, V] after each token before them.
    """
    generator = torch.Generator().manual_seed(3)
    size = (BLOCK_VOCAB, BLOCK_VOCAB)
    logits = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    p, q = logits.softmax(-1), (DRAFT_CONFIDENCE * logits + DRAFT_NOISE * noise).softmax(-1)
    right = (_first(p) * _second(p) * _third(p)).flatten(1)
    wrong = law(p, q).flatten(1)
    table = (wrong / wrong.sum(-1, keepdim=True)).numpy()
    cells = np.indices((BLOCK_VOCAB,) * BLOCK_TOKENS).reshape(BLOCK_TOKENS, -1)

    def draw(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        blocks = -(-n // BLOCK_TOKENS)
        per_root = rng.multinomial(blocks, np.full(BLOCK_VOCAB, 1 / BLOCK_VOCAB))
        counts = np.zeros(size, dtype=np.int64)
        for root, drawn in enumerate(rng.multinomial(per_root, table)):
            before = np.concatenate([np.full((1, cells.shape[1]), root), cells[:-1]])
            np.add.at(counts, (before, cells), drawn)
        return counts

    expected = np.zeros(size)
    for root, joint in enumerate(table):
        before = np.concatenate([np.full((1, cells.shape[1]), root), cells[:-1]])
        np.add.at(expected, (before, cells), joint)
    information = float(_kl(wrong, right).mean()) / BLOCK_TOKENS
    settings = Sampling(temperature=1.0)
    return Simulated(
        name, family, settings, Rows(p, q=q), draw, expected, information, table,
        right.numpy(), False, BLOCK_TOKENS,
    )  # fmt: skip


def _first(chain: Tensor) -> Tensor:
    return chain[:, :, None, None]


def _second(chain: Tensor) -> Tensor:
    return chain[None, :, :, None]


def _third(chain: Tensor) -> Tensor:
    return chain[None, None, :, :]


def bonus_from_draft(p: Tensor, q: Tensor) -> Tensor:
    """The token after two accepted ones is the draft's."""
    kept = torch.minimum(p, q)
    both = _first(kept) * _second(kept)
    return both * _third(q) + (_first(p) * _second(p) - both) * _third(p)


def first_unverified(p: Tensor, q: Tensor) -> Tensor:
    """The first token of each block is accepted unseen."""
    kept = torch.minimum(p, q)
    return _first(q) * (_second(kept) * _third(p) + _second(p - kept) * _third(q))


def product_rule(p: Tensor, q: Tensor) -> Tensor:
    """The longest prefix whose product of ratios is above one coin, recovered token by token."""
    ratio = p / q
    return _one_coin(p, q, (ratio[:, :, None] * ratio[None]).clamp(max=1))


def shared_coin(p: Tensor, q: Tensor) -> Tensor:
    """Both drafts are tested with the same coin."""
    ratio = p / q
    return _one_coin(p, q, torch.minimum(ratio[:, :, None], ratio[None]).clamp(max=1))


def _one_coin(p: Tensor, q: Tensor, both: Tensor) -> Tensor:
    """Accept both drafts with probability ``both`` [previous, d_1, d_2], else d_1 with p/q."""
    one = ((p / q).clamp(max=1)[:, :, None] - both).relu()
    left = (p - q).relu()
    recovered = left / left.sum(-1, keepdim=True)
    drafts = q[:, :, None] * q[None]
    two = drafts * both
    after_one = (drafts * one).sum(-1)  # [previous, d_1]
    none = 1 - two.sum((1, 2)) - after_one.sum(-1)
    ended = after_one[:, :, None] * recovered[None]  # d_1, then a recovered token: the round ends
    restarted = none[:, None] * recovered
    first = two.sum(-1) + after_one + restarted  # law of the first token of a round
    pair = two + ended + restarted[:, :, None] * first[None]  # and of its first two
    return (
        two[..., None] * _third(p)
        + ended[..., None] * _third(first)
        + _first(restarted) * pair[None]
    )


def observed(rows: Rows, counts: NDArray[np.generic], q: bool) -> Rows:
    """The contexts with what was emitted in them, and with the draft's law or without."""
    return replace(rows, counts=torch.from_numpy(counts).double(), q=rows.q if q else None)
