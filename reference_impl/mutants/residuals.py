"""Wrong tokens after the accepted drafts: what replaces a rejected one, and the bonus."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.acceptance import another
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.speculative import residual
from reference_impl.transfers import to_device

FAMILY, EVIDENCE = "distribution.family", "distribution.evidence"
RECOVERED = "distribution.recovered"


@mutant(
    FaultClass.RESIDUAL,
    FAMILY,
    EVIDENCE,
    RECOVERED,
    subtle={"share": 0.2},
    subtle_killed_by=(RECOVERED,),
)
class ResampleFromTarget(SpeculativeEngine):
    """A rejected token is replaced by a draw from p instead of (p - q)+."""

    share = 1.0

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return torch.where(another(u) < self.share, inverse_cdf(p, u), super().choose(p, q, u))


@mutant(FaultClass.RESIDUAL, FAMILY, EVIDENCE)
class AbsoluteResidual(SpeculativeEngine):
    """A rejected token is replaced by a draw from abs(p - q)."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return inverse_cdf((p - q).abs(), u)


@mutant(FaultClass.RESIDUAL, FAMILY, EVIDENCE, id="F40", source="huggingface/transformers#28508")
class SoftmaxResidual(SpeculativeEngine):
    """The clamped difference goes through softmax instead of being divided by its sum."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        rejected = q.sum(1) > 0
        chosen = inverse_cdf((p - q).clamp(min=0).softmax(-1), u)
        return torch.where(rejected, chosen, super().choose(p, q, u))


@mutant(FaultClass.RESIDUAL, FAMILY, EVIDENCE)
class ArgmaxResidual(SpeculativeEngine):
    """A rejected token is replaced by the likeliest one of the residual."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        rejected = q.sum(1) > 0
        return torch.where(rejected, (p - q).argmax(-1), super().choose(p, q, u))


@mutant(FaultClass.RESIDUAL, FAMILY, EVIDENCE)
class ReversedResidual(SpeculativeEngine):
    """A rejected token is replaced by a draw from (q - p)+."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        rejected = q.sum(1) > 0
        return torch.where(rejected, inverse_cdf(residual(q, p), u), super().choose(p, q, u))


@mutant(FaultClass.RESIDUAL, FAMILY)
class RejectedAgain(SpeculativeEngine):
    """The residual keeps the rejected token: its share of p is not reduced by q."""

    def q_rejected(self, proposal: Proposal, accepted: Tensor, count: Tensor) -> Tensor:
        q = super().q_rejected(proposal, accepted, count)
        if not proposal.tokens.shape[1]:
            return q
        at = accepted.clamp(max=proposal.tokens.shape[1] - 1).unsqueeze(1)
        return q.scatter(1, proposal.tokens.gather(1, at), 0.0)


@mutant(FaultClass.RESIDUAL, FAMILY)
class ResidualOfFirst(SpeculativeEngine):
    """The residual is always that of the first draft's law."""

    def q_rejected(self, proposal: Proposal, accepted: Tensor, count: Tensor) -> Tensor:
        rejected = (accepted < count).unsqueeze(1)
        return super().q_rejected(proposal, accepted * 0, count) * rejected


# --- the token after a fully accepted block -------------------------------------------------------


@mutant(FaultClass.BONUS, "greedy.identity", FAMILY, EVIDENCE)
class BonusFromDraft(SpeculativeEngine):
    """The token after a fully accepted block is the draft's, not the target's."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, np.where(count > 0, count + 1, 0))
        drafted = to_device(count, self.device)
        if not proposal.tokens.shape[1]:
            self._bonus = torch.full_like(drafted, -1)
            return proposal
        self._bonus = proposal.tokens.gather(1, drafted.unsqueeze(1)).squeeze(1)
        q = proposal.q[:, :-1] if proposal.q is not None else None
        return Proposal(proposal.tokens[:, :-1], count, q)

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        from_draft = (accepted == count) & (count > 0)
        return super().emit(proposal, accepted, torch.where(from_draft, self._bonus, chosen), count)


@mutant(FaultClass.BONUS, "greedy.identity", FAMILY, EVIDENCE)
class BonusRepeatsLast(SpeculativeEngine):
    """The last accepted token of a full block is emitted twice: once more as its bonus."""

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        if proposal.tokens.shape[1]:
            last = proposal.tokens.gather(1, (count - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
            chosen = torch.where((accepted == count) & (count > 0), last, chosen)
        return super().emit(proposal, accepted, chosen, count)


@mutant(FaultClass.BONUS, FAMILY, EVIDENCE)
class BonusArgmax(SpeculativeEngine):
    """The bonus token is the likeliest one instead of a draw."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        bonus = (q.sum(1) == 0) & self._drafted
        return torch.where(bonus, p.argmax(-1), super().choose(p, q, u))

    def q_rejected(self, proposal: Proposal, accepted: Tensor, count: Tensor) -> Tensor:
        self._drafted = count > 0
        return super().q_rejected(proposal, accepted, count)


@mutant(FaultClass.BONUS, "greedy.identity", FAMILY, EVIDENCE)
class BonusOfRowBefore(SpeculativeEngine):
    """The bonus token is drawn from the row of the last draft instead of the one after it."""

    def process(self, logits: Tensor, batch: Batch, proposal: Proposal) -> Tensor:
        row, last = torch.arange(len(batch)), torch.from_numpy(proposal.count)
        logits = logits.clone()
        logits[row, last] = logits[row, (last - 1).clamp(min=0)]
        return super().process(logits, batch, proposal)
