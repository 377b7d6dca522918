"""The simplest tree: two drafted chains a row, which part at their first token.

The draft's two likeliest tokens open a chain each, and both are verified: not by one tree
attention, but one beside the other, every chain on a copy of the row's cache. The copy whose
chain begins with the token that the target takes is kept, the other one dropped.

Why it is exact. Both first tokens are fixed before any coin falls, so each is a point mass:
``tried_in_turn`` shares p among them and what is left of it (SpecInfer, Miao et al. 2023, with
q = 1). From the second token on there is one chain, judged as any other point mass is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.sampling import one_hot
from reference_impl.transfers import to_device


class BranchDrafter(ModelDrafter):
    """Goes on twice from the same text: with its likeliest token, and with the second of them."""

    follows_the_request = False
    _rank = 0

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Both chains one after the other, [2B, K]."""
        first = super().propose(batch, count)
        self._cached, self._rank = batch.length - 1, 1  # the last token again, and on from there
        second = super().propose(batch, count)
        self._rank = 0
        return Proposal(torch.cat([first.tokens, second.tokens]), np.tile(count, 2))

    def _pick(
        self, processed: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        rank = 0 if drafts.shape[1] else self._rank
        return processed.topk(2).indices[:, rank], None

    def observe(self, accepted: Ints) -> None:
        """Roll back to what was committed before: whichever chain was kept is fed again."""
        self._cached = self._before


class TwoBranches(SpeculativeEngine):
    """Verifies two chains a row, and goes on with the one that the target enters.

    Rounds count that chain alone. The drafter must be a ``BranchDrafter``.
    """

    def verify(
        self, batch: Batch, target: CachedModel, cached: Ints, proposal: Proposal
    ) -> tuple[Proposal, Tensor]:
        """Feed both chains, draw the first token, and keep the chain that begins with it."""
        if not proposal.tokens.shape[1]:
            return super().verify(batch, target, cached, proposal)
        first, second = proposal.tokens.chunk(2)
        chains = [Proposal(tokens, proposal.count[: len(batch)]) for tokens in (first, second)]
        rows = torch.arange(len(batch), device=self.device)
        target.select(rows.repeat(2))
        blocks = torch.cat([self.block(batch, chain) for chain in chains])
        logits = self.rows(target.forward(blocks, np.tile(cached, 2)))
        self._token = self.first_token(batch, logits[: len(batch), :1], first[:, 0], second[:, 0])
        entered = (self._token == second[:, 0]).long()
        kept = rows + entered * len(batch)
        self.keep(target, kept)
        batch.fed(chains[0].count + 1)  # by the chain that is dropped
        return Proposal(proposal.tokens[kept], chains[0].count), self.entered(logits, kept)

    def keep(self, target: CachedModel, rows: Tensor) -> None:
        """Keep the cache rows of the chains that were entered."""
        target.select(rows)

    def entered(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Logits [B, K + 1, V] of the chains that were entered, out of all [2B, K + 1, V]."""
        return logits[rows]

    def first_token(self, batch: Batch, logits: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Draw the token [B] after the text from its logits [B, 1, V], the openings in turn."""
        nothing = Proposal(first[:, None][:, :0], batch.room() * 0)
        p = super().law(self.process(logits, batch, nothing), batch)[:, 0]
        used = to_device((batch.room() > 0) * 3, self.device)
        u = batch.streams.uniform(3, used=used)
        return self.tried(p, torch.stack([first, second], 1), u)

    def tried(self, p: Tensor, candidates: Tensor, u: Tensor) -> Tensor:
        """``tried_in_turn``."""
        return tried_in_turn(p, candidates, u)

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        """As ever; but where the first token was drawn, it is its own law."""
        p = super().law(processed, batch)
        if p.shape[1] > 1:
            drawn = to_device(batch.room() > 0, self.device).unsqueeze(1)
            p[:, 0] = torch.where(drawn, one_hot(self._token, self.vocab), p[:, 0])
        return p


def tried_in_turn(p: Tensor, candidates: Tensor, u: Tensor) -> Tensor:
    """Accept a candidate c with p(c), else go on with p without c, renormalised.

    Parameters
    ----------
    p : Tensor [B, V], float
    candidates : Tensor [B, N], int64
        Different from each other in a row, and fixed before any coin is drawn.
    u : Tensor [B, N + 1], float64
        A coin for each of them, and one for the token where none is accepted.

    Returns
    -------
    Tensor [B], int64
    """
    p = p.double()
    left = p.scatter(1, candidates, 0.0)
    # Where the candidates are all there is, the last of them with p(c) > 0 is accepted surely.
    token = inverse_cdf(torch.where(left.sum(1, keepdim=True) > 0, left, p), u[:, -1])
    for i in reversed(range(candidates.shape[1])):
        c = candidates[:, i : i + 1]
        still = p.scatter(1, candidates[:, :i], 0.0)  # those before it were rejected
        accepted = u[:, i] * still.sum(1) < still.gather(1, c).squeeze(1)
        token = torch.where(accepted, c.squeeze(1), token)
    return token
