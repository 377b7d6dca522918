"""Rules that judge a drafted block, beside the token-wise rejection of ``engine.py``.

p is the target's law, q the draft's, d the drafts; all rows of a batch at once.

    block verification  how much of a block is kept is drawn for all of it together (Sun et al.
                        2024, "Block Verification Accelerates Speculative Decoding"): exact, and on
                        average never less than token-wise rejection keeps
    sampler matching    the target draws a token of its own at every position, and drafts that equal
                        it are kept: exact whatever the drafts are, and blind to q
    typical acceptance  a draft is kept if p finds it likely enough for a law so uncertain (Cai et
                        al. 2024, "Medusa"): lossy, and declared so
"""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.sampling import one_hot
from reference_impl.speculative import residual


class BlockVerification(SpeculativeEngine):
    """Draws how much of a block is kept from the whole block, not token by token.

    Why it is exact. Let r_i be the running ratio p/q of the first i drafts, cut at 1 as it goes:
    the share of the draft's mass at d_1 .. d_i that the target has room for. A block that ends at i
    leaves (r_i p - q)+ to be drawn from, and h_i is the probability that makes the mass which stays
    at i, over all drafts that go on from there, what the target needs there (theorem 1 there).
    """

    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Keep the longest prefix whose own coin falls well; the residual is weighted by r."""
        q = self.q_of_block(proposal)
        ratio = running_ratio(p, q, proposal.tokens)
        ends = falls(u[:, :-1], chances(p, q, ratio, count))
        lengths = torch.arange(1, ends.shape[1] + 1, device=self.device)
        ends &= lengths <= count.unsqueeze(1)
        accepted = (ends * lengths).amax(1) if ends.shape[1] else torch.zeros_like(count)
        row = torch.arange(len(p), device=self.device)
        rejected = (accepted < count).unsqueeze(1)
        at = accepted.clamp(max=max(0, ends.shape[1] - 1))
        q_next = q[row, at] * rejected if ends.shape[1] else torch.zeros_like(p[:, 0])
        share = torch.where(rejected, ratio[row, accepted].unsqueeze(1), 1.0)
        left = residual(share * p[row, accepted], q_next)
        return accepted, inverse_cdf(left, u.gather(1, count.unsqueeze(1)).squeeze(1))

    def q_of_block(self, proposal: Proposal) -> Tensor:
        """The draft's laws [B, K, V]; point masses for tokens that were fixed."""
        return one_hot(proposal.tokens, self.vocab) if proposal.q is None else proposal.q


def running_ratio(p: Tensor, q: Tensor, drafts: Tensor) -> Tensor:
    """r_0 = 1 and r_i = min(1, r_{i-1} p(d_i) / q(d_i)), [B, K + 1], float64."""
    at = drafts.unsqueeze(2)
    ratios = (p[:, :-1].gather(2, at).double() / q.gather(2, at).double()).squeeze(2)
    running = [torch.ones(len(p), dtype=torch.float64, device=p.device)]
    for i in range(drafts.shape[1]):
        running.append((running[-1] * ratios[:, i]).clamp(max=1))
    return torch.stack(running, 1)


def chances(p: Tensor, q: Tensor, ratio: Tensor, count: Tensor) -> Tensor:
    """h_i, the probability that the block is kept up to draft i at least as far as i decides.

    Parameters
    ----------
    p : Tensor [B, K + 1, V]
    q : Tensor [B, K, V]
    ratio : Tensor [B, K + 1]
        Of ``running_ratio``.
    count : Tensor [B], int64
        Drafts of each row.

    Returns
    -------
    Tensor [B, K], float64
        h_i = s / (s + 1 - r_i) with s = sum_x (r_i p_i(x) - q_i(x))+ over the law that follows
        draft i; at the last draft of a row h is r itself.
    """
    following = (ratio[:, 1:-1, None] * p[:, 1:-1] - q[:, 1:]).clamp(min=0).sum(2)
    missing = 1 - ratio[:, 1:-1]
    # Nothing left and nothing missing: p is q from here on. No coin of the next draft can fall
    # badly, so it does not matter whether one of this draft ends the block.
    chance = torch.where(missing > 0, following / (following + missing), 1.0)
    chance = torch.cat([chance, ratio[:, -1:]], 1)[:, : q.shape[1]]
    last = torch.arange(1, q.shape[1] + 1, device=p.device) == count.unsqueeze(1)
    return torch.where(last, ratio[:, 1:], chance)


def falls(u: Tensor, chance: Tensor) -> Tensor:
    """Whether coins fall well, with these probabilities."""
    return u < chance


class SamplerMatching(SpeculativeEngine):
    """Every emitted token is a draw of the target's own; drafts only save its calls."""

    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw at all K + 1 positions, and keep the drafts up to the first that differs."""
        return self.matched(inverse_cdf(p, u), proposal, count, u)


class TypicalAcceptance(SpeculativeEngine):
    """Lossy: a draft is kept if its probability exceeds min(epsilon, delta exp(-H(p))).

    Attributes
    ----------
    epsilon, delta : float
        Medusa's defaults.
    """

    epsilon, delta = 0.09, 0.3

    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Keep what is typical, and draw the next token from p."""
        p_drafts = p[:, :-1].gather(2, proposal.tokens.unsqueeze(2)).squeeze(2)
        typical = (p_drafts > self.enough(p[:, :-1])).double()
        accepted = self.accepted(typical, torch.ones_like(typical), u[:, :-1], count)
        row = torch.arange(len(p), device=self.device)
        coin = u.gather(1, count.unsqueeze(1)).squeeze(1)
        return accepted, inverse_cdf(p[row, accepted], coin)

    @classmethod
    def enough(cls, p: Tensor) -> Tensor:
        """What the probability of a draft has to exceed under these laws, [..., V] -> [...]."""
        entropy: Tensor = torch.special.entr(p).sum(-1)
        return (cls.delta * (-entropy).exp()).clamp(max=cls.epsilon)
