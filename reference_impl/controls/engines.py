"""Exact relatives of the reference engine: one step overridden, the target's law kept."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.branches import tried_in_turn
from reference_impl.cache import Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal
from reference_impl.randomness import Streams, inverse_cdf
from reference_impl.sampling import one_hot
from reference_impl.speculative import residual
from reference_impl.transfers import to_device


class ArgmaxDrafter(ModelDrafter):
    """Proposes its most likely tokens at any temperature, and their laws."""

    follows_the_request = False

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        token, q = super()._draw(logits, batch, drafts, u)
        return token if q is None else q.argmax(-1), q


class BareDrafter(ModelDrafter):
    """Proposes from its bare logits, whatever the request's parameters, and says so in q."""

    follows_the_request = False

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if batch.parameters.greedy:
            return logits.argmax(-1), None
        q = logits.float().softmax(-1)
        return inverse_cdf(q, u), q


class PointMass(SpeculativeEngine):
    """A drafted token is judged as if it had been proposed with certainty, however it was drawn."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        return replace(super().propose(batch, count), q=None)


class SamplerMatch(PointMass):
    """The target draws a token of its own at every position, and drafts that equal it are kept."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        used = to_device(batch.room() + 1, self.device)
        u = batch.streams.uniform(p.shape[1], used=used)
        # From here on the draw is the law: it accepts its equal, and else leaves itself.
        return one_hot(inverse_cdf(p, u), self.vocab)


class Candidates(SpeculativeEngine):
    """Three fixed candidates for the first position are tried in turn, each with q = 1.

    The draft's chain goes on under the first of them. Another one that is accepted ends the
    round: no row of the target follows it. Rounds count the chain alone.
    """

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        if proposal.q is not None:
            self._candidates = proposal.q[:, 0].argsort(-1, descending=True)[:, :3]
        return replace(proposal, q=None)

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        drafting = to_device(batch.room() > 0, self.device)
        if drafting.any():
            coins = self._candidates.shape[1] + 1
            u = batch.streams.uniform(coins, used=drafting * coins)
            first = one_hot(tried_in_turn(p[:, 0], self._candidates, u), self.vocab)
            p[:, 0] = torch.where(drafting.unsqueeze(1), first, p[:, 0])
        return p


class NearTies(SpeculativeEngine):
    """Blocks of several positions are computed by another kernel: their logits are rounded.

    Attributes
    ----------
    step : float
        Grid of the rounding: the noise of float32 logits, as ``harness.oracle.noise`` finds it
        on the tiny pairs.
    """

    step = 2.0**-18

    def rows(self, logits: Tensor) -> Tensor:
        return (logits / self.step).round() * self.step if logits.shape[1] > 1 else logits


class OtherRandomness(SpeculativeEngine):
    """Coins are read from the other end, and tokens win a race instead of an inverted sum."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return (1 - u) * q <= p  # 1 - u is in (0, 1]

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        """Token i arrives at an exponential time of rate (p - q)+; the first one is drawn.

        Gumbel-max, in logarithms. The coin seeds a stream that gives every token its own.
        """
        seeds: list[int | None] = (u * 2**52).long().tolist()
        times = -Streams(seeds, self.device).uniform(self.vocab).log()
        return (times / residual(p, q)).argmin(-1)
