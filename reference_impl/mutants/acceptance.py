"""Wrong rules of acceptance."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant

FAMILY = "distribution.family"


def another(u: Tensor) -> Tensor:
    """Another coin for each: the low bits, on which no comparison with a probability depends."""
    return u * 2.0**26 % 1


@mutant(
    FaultClass.ACCEPTANCE,
    "greedy.identity",
    "arms.greedy",
    FAMILY,
    "acceptance.expected",
    subtle={"rate": 0.05},
    subtle_killed_by=(FAMILY,),
)
class AcceptAll(SpeculativeEngine):
    """Drafted tokens are accepted unverified."""

    rate = 1.0

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(p, q, u) | (another(u) < self.rate)


@mutant(
    FaultClass.ACCEPTANCE,
    FAMILY,
    "distribution.evidence",
    "acceptance.expected",
    "arms.sampled",
    id="F25",
    source="huggingface/transformers#28508",
)
class AcceptAllSampled(SpeculativeEngine):
    """The first rejection is never found when sampling; greedy decoding is right."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(p, q, u) | (q < 1)


@mutant(
    FaultClass.ACCEPTANCE,
    FAMILY,
    "distribution.evidence",
    "acceptance.expected",
    id="F26",
    source="vllm-project/vllm-ascend#13766",
)
class CoinIsZero(SpeculativeEngine):
    """The coin of acceptance is the constant 0."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(p, q, torch.zeros_like(u))


@mutant(
    FaultClass.ACCEPTANCE,
    "greedy.identity",
    FAMILY,
    id="F28",
    source="mlx-node/mlx-node#11",
)
class OffByOneRow(SpeculativeEngine):
    """Draft i is judged by the row after it."""

    def rows(self, logits: Tensor) -> Tensor:
        return torch.cat([logits[:, 1:], logits[:, -1:]], 1)


@mutant(
    FaultClass.PARAMETERS,
    FAMILY,
    "distribution.evidence",
    id="F30",
    source="sgl-project/sglang#31214",
)
class GreedyVerification(SpeculativeEngine):
    """Drafts are verified by the target's argmax, at any temperature."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        if not batch.draft_tokens.any():
            return super().law(processed, batch)
        return sampling.one_hot(processed.argmax(-1), self.vocab)


@mutant(
    FaultClass.ACCEPTANCE,
    "distribution.evidence[tiny-T=0.7 top_k=20 top_p=0.9]",
    id="F31",
    source="sgl-project/sglang#35771",
)
class InclusiveCoin(SpeculativeEngine):
    """The comparison with the coin is inclusive: a coin of 0 accepts what is impossible.

    In float32 a coin is 0 about once in 2^24 draws; this one is a multiple of 1/64.
    """

    cells = 64

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        if not bool((q < 1).any()):
            return super().accept(p, q, u)
        return (u * self.cells).floor() / self.cells * q <= p


@mutant(
    FaultClass.ACCEPTANCE,
    "distribution.evidence[tiny-T=1]",
    id="F32",
    source="vllm-project/vllm-ascend#7807",
)
class BlockRule(SpeculativeEngine):
    """The longest prefix whose product of p/q beats one coin; the residual stays token-wise."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        place = torch.arange(1, p.shape[1] + 1, device=self.device)
        kept = (u[:, :1] < (p / q).cumprod(1)) & (place <= count.unsqueeze(1))
        longest: Tensor = (kept * place).amax(1) if p.shape[1] else count
        return longest


@mutant(
    FaultClass.ACCEPTANCE,
    FAMILY,
    "distribution.evidence",
    subtle={"factor": 1.1},
    subtle_killed_by=(FAMILY,),
)
class OverAccept(SpeculativeEngine):
    """Acceptance with probability min(1, c p/q)."""

    factor = 1.5

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(self.factor * p, q, u)


@mutant(
    FaultClass.ACCEPTANCE,
    "greedy.identity",
    FAMILY,
    "distribution.evidence",
    id="F27",
    source="ohdearquant/lattice#243 (PR 258)",
)
class FirstUnverified(SpeculativeEngine):
    """The first draft of every block is accepted unseen."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        kept = super().accept(p, q, u)
        kept[:, :1] = True
        return kept


@mutant(FaultClass.ACCEPTANCE, "greedy.identity", FAMILY)
class CountsNoPrefix(SpeculativeEngine):
    """As many drafts are kept as would be accepted, though one before them was not."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        kept = self.accept(p, q, u)
        kept &= torch.arange(p.shape[1], device=self.device) < count.unsqueeze(1)
        return kept.sum(1)


@mutant(
    FaultClass.ACCEPTANCE,
    FAMILY,
    "distribution.evidence",
    subtle={"threshold": 0.3},
)
class LikelyEnough(SpeculativeEngine):
    """A draft is accepted if the target finds it likely enough."""

    threshold = 0.1

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return p > self.threshold


@mutant(FaultClass.ACCEPTANCE, "greedy.identity", FAMILY, "distribution.evidence")
class RatioUpsideDown(SpeculativeEngine):
    """Acceptance with probability min(1, q/p)."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(q, p, u)
