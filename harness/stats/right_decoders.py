"""Right decoders at table level, many runs at once: what false alarms are counted on.

They take the steps that real ones take, draft, coin, residual, and do not just draw from p. A
table of contexts stands for the models: what is emitted leads to the next context, as in a
language model, so how a round goes and which contexts come depend on the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from harness.stats.rows import Rows
from reference_impl.branches import tried_in_turn
from reference_impl.randomness import inverse_cdf
from reference_impl.speculative import residual

DRAFTS = 3  # K
CANDIDATES = 3
COINS = CANDIDATES + 1  # that a rule may use for a token

Rule = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""``rule(p, q, u)``: one drafted position of each run, from laws [R, V] and coins [COINS, R].

Gives what is emitted [R], int64, and whether the round goes on [R], bool.
"""


def plain(p: Tensor, _: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """A draw from p; nothing is drafted."""
    token = inverse_cdf(p, u[0])
    return token, torch.zeros_like(token, dtype=torch.bool)


def rejection(p: Tensor, q: Tensor, u: Tensor, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Token-wise rejection: kept with probability min(1, factor p/q), else from the residual.

    Right at factor 1 only; the others are what certificates are about.
    """
    draft = inverse_cdf(q, u[0])
    accepted = u[1] * _at(q, draft) < factor * _at(p, draft)
    return torch.where(accepted, draft, inverse_cdf(residual(p, q), u[2])), accepted


def point_mass(p: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Control C1: a draft d from q is kept with probability p(d), else p without d is drawn."""
    draft = inverse_cdf(q, u[0])
    accepted = u[1] < _at(p, draft)
    others = p.scatter(1, draft.unsqueeze(1), 0.0)
    return torch.where(accepted, draft, inverse_cdf(others, u[2])), accepted


def sampler_match(p: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Control C2: the target draws, and the argmax of q is kept if it is equal."""
    token = inverse_cdf(p, u[0])
    return token, token == q.argmax(-1)


def candidates(p: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Control C3: the likeliest tokens of q are tried in turn, each with q = 1."""
    fixed = q.topk(CANDIDATES, -1).indices
    token = tried_in_turn(p, fixed, u.T)
    return token, (token.unsqueeze(1) == fixed).any(-1)


def leaking(p: Tensor, q: Tensor, u: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Not right: a share of tokens comes from q unverified. What certificates are about."""
    leaks = u[1] < rate
    return torch.where(leaks, inverse_cdf(q, u[0]), inverse_cdf(p, u[0])), leaks


def _at(law: Tensor, token: Tensor) -> Tensor:
    return law.gather(1, token.unsqueeze(1)).squeeze(1)


RIGHT: Mapping[str, Rule] = {
    "draws from p": plain,
    "rejection": rejection,
    "C1 point mass": point_mass,
    "C2 sampler match": sampler_match,
    "C3 candidates": candidates,
}
LEAKS: Mapping[float, Rule] = {e: partial(leaking, rate=e) for e in (0.03, 0.1, 0.5)}
OVER_ACCEPTING: Mapping[float, Rule] = {f: partial(rejection, factor=f) for f in (1.05, 1.3, 2.0)}


@dataclass(frozen=True, eq=False)
class Models:
    """A target and a draft, as tables.

    Attributes
    ----------
    rows : Rows
        Laws in every context, [C, V].
    after : Tensor [C, V], int64
        The context that each token leads to.
    """

    rows: Rows
    after: Tensor

    @classmethod
    def of(cls, rows: Rows, seed: int = 0) -> Models:
        """Any context may follow a token."""
        generator = torch.Generator().manual_seed(seed)
        contexts, _ = rows.p.shape
        return cls(rows, torch.randint(contexts, rows.p.shape, generator=generator))

    @classmethod
    def chain(cls, vocab: int, seed: int = 3) -> Models:
        """Markov chains: the context is the token before."""
        generator = torch.Generator().manual_seed(seed)
        logits, noise = torch.randn(2, vocab, vocab, generator=generator, dtype=torch.float64)
        p, q = (1.5 * logits).softmax(-1), (logits + noise).softmax(-1)
        return cls(Rows(p, q=q), torch.arange(vocab).repeat(vocab, 1))


@dataclass(frozen=True, eq=False)
class Runs:
    """What R runs emitted; all [R, n].

    Attributes
    ----------
    contexts, tokens : Tensor, int64
    place : Tensor, int64
        Position in the round, 0-based; K for a bonus token.
    accepted : Tensor, bool
        Whether the round went on after this token; never after a bonus token.
    """

    contexts: Tensor
    tokens: Tensor
    place: Tensor
    accepted: Tensor

    def after(self, accepted: int) -> Tensor:
        """Where the round after the first one that accepted so many begins, [R]; -1: nowhere."""
        ends = ~self.accepted & (self.place == accepted)
        ends[:, -1] = False  # of what begins there nothing is seen
        return torch.where(ends.any(1), ends.int().argmax(1) + 1, -1)


def decode(
    rule: Rule,
    models: Models,
    tokens: int,
    start: Tensor,
    generator: torch.Generator,
    drafts: int = DRAFTS,
) -> Runs:
    """Let a decoder emit ``tokens`` tokens after each context of ``start`` [R].

    A draft is drawn when its position is reached: those behind a rejection are never looked at.

    Parameters
    ----------
    drafts : int
        K: so many positions of a round follow the rule, the next one is a draw from p.
    """
    p, q = models.rows.p, models.rows.q
    assert q is not None
    context, place = start, torch.zeros_like(start)
    found: list[tuple[Tensor, ...]] = []
    for _ in range(tokens):
        u = torch.rand(COINS, len(start), generator=generator, dtype=torch.float64)
        token, accepted = rule(p[context], q[context], u)
        bonus = place == drafts
        token = torch.where(bonus, inverse_cdf(p[context], u[0]), token)
        accepted = accepted & ~bonus
        found.append((context, token, place, accepted))
        place = torch.where(accepted, place + 1, 0)
        context = models.after[context, token]
    return Runs(*(torch.stack(column, 1) for column in zip(*found, strict=True)))
