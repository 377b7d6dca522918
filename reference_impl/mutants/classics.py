"""The classic faults of speculative decoding: the reference engine with one step overridden."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf


@mutant(FaultClass.ACCEPTANCE, "greedy.identity", "distribution.family", "acceptance.expected")
class AcceptAll(SpeculativeEngine):
    """Every drafted token is accepted."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return torch.ones_like(p, dtype=torch.bool)


@mutant(FaultClass.RESIDUAL, "distribution.family")
class ResampleFromTarget(SpeculativeEngine):
    """A rejected token is replaced by a draw from p instead of (p - q)+."""

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return inverse_cdf(p, u)


@mutant(FaultClass.ACCEPTANCE, "greedy.identity", "distribution.family")
class OffByOneRow(SpeculativeEngine):
    """Draft i is judged by the row after it."""

    def rows(self, logits: Tensor) -> Tensor:
        return torch.cat([logits[:, 1:], logits[:, -1:]], 1)


@mutant(FaultClass.END, "stopping.offsets")
class EosMissedInBlock(SpeculativeEngine):
    """EOS is looked for in the last token of a round only."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        return np.where(batch.active, np.minimum(count, batch.limit - batch.length), 0)


@mutant(FaultClass.CACHE, "greedy.identity", "distribution.evidence")
class NoRollback(SpeculativeEngine):
    """Rejected tokens stay in the cache of the target."""

    def capacity(self, batch: Batch) -> int:
        return super().capacity(batch) * (int(batch.draft_tokens.max()) + 1)

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        return fed


@mutant(FaultClass.ACCEPTANCE, "distribution.family")
class OverAccept(SpeculativeEngine):
    """Acceptance with probability min(1, 1.1 p/q)."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return u * q < 1.1 * p


@mutant(FaultClass.BONUS, "greedy.identity", "distribution.family")
class BonusFromDraft(SpeculativeEngine):
    """The token after a fully accepted block is the draft's, not the target's."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, np.where(count > 0, count + 1, 0))
        drafted = torch.from_numpy(count).to(self.device)
        if not proposal.tokens.shape[1]:
            self._bonus = torch.full_like(drafted, -1)
            return proposal
        self._bonus = proposal.tokens.gather(1, drafted.unsqueeze(1)).squeeze(1)
        q = proposal.q[:, :-1] if proposal.q is not None else None
        return Proposal(proposal.tokens[:, :-1], count, q)

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        from_draft = (accepted == count) & (count > 0)
        return super().emit(proposal, accepted, torch.where(from_draft, self._bonus, chosen), count)
