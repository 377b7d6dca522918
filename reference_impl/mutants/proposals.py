"""Proposals that are not drawn from the q they are judged by."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.controls.engines import ArgmaxDrafter
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import MakeDrafter, mutant
from reference_impl.proposal import Proposal
from reference_impl.randomness import inverse_cdf

FAMILY, EVIDENCE = "distribution.family", "distribution.evidence"


def drafting(kind: type[ModelDrafter]) -> MakeDrafter:
    """The pair's draft in the hands of a wrong drafter."""

    def make(pair: ModelPair) -> ModelDrafter:
        return kind(pair.draft, pair.vocab_size)

    return make


class RedrawingDrafter(ModelDrafter):
    """Draws from another law than it reports."""

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        token, q = super()._draw(logits, batch, drafts, u)
        return (token, None) if q is None else (inverse_cdf(self.drawn_from(q), u), q)

    def drawn_from(self, q: Tensor) -> Tensor:
        """Weights [B, V] that the draft is drawn by."""
        raise NotImplementedError


class HotDrafter(RedrawingDrafter):
    """q at 1.5 times the temperature."""

    def drawn_from(self, q: Tensor) -> Tensor:
        return q ** (1 / 1.5)


class WarmDrafter(RedrawingDrafter):
    """q at 1.2 times the temperature."""

    def drawn_from(self, q: Tensor) -> Tensor:
        return q ** (1 / 1.2)


class CoarseDrafter(RedrawingDrafter):
    """q of logits that are rounded to whole numbers."""

    def drawn_from(self, q: Tensor) -> Tensor:
        return q.log().round().exp()


class WholeDrafter(ModelDrafter):
    """Reports its law before the filters that it draws under."""

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        token, q = super()._draw(logits, batch, drafts, u)
        if q is not None:
            q = sampling.normalise(logits.float(), replace(batch.parameters, filtered=False))
        return token, q


@mutant(
    FaultClass.PROPOSAL,
    FAMILY,
    EVIDENCE,
    id="F34",
    source="NVIDIA/TensorRT-LLM#3278",
)
class UnnormalisedProposal(SpeculativeEngine):
    """The draft's scores are exponentiated, and not divided by their sum: the largest is 1."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        if proposal.q is None:
            return proposal
        return replace(proposal, q=proposal.q / proposal.q.amax(-1, keepdim=True))


@mutant(
    FaultClass.PROPOSAL,
    FAMILY,
    EVIDENCE,
    id="F35",
    source="huggingface/transformers#32867",
    drafter=drafting(ArgmaxDrafter),
)
class ArgmaxProposal(SpeculativeEngine):
    """Drafts are the argmax of q, and judged as if drawn from q."""


@mutant(
    FaultClass.PROPOSAL,
    FAMILY,
    id="F39",
    source="deepseek-ai/DeepSpec#31",
    drafter=drafting(CoarseDrafter),
)
class CoarseProposal(SpeculativeEngine):
    """Drafts are drawn from coarsely rounded logits, and judged by the exact q."""


@mutant(FaultClass.PROPOSAL, FAMILY, EVIDENCE, drafter=drafting(HotDrafter))
class HotProposal(SpeculativeEngine):
    """Drafts are drawn at 1.5 times the temperature that they are judged at."""


@mutant(FaultClass.PROPOSAL, FAMILY, drafter=drafting(WarmDrafter))
class HotProposalSubtle(SpeculativeEngine):
    """Drafts are drawn at 1.2 times the temperature that they are judged at."""


@mutant(FaultClass.PROPOSAL, FAMILY, EVIDENCE)
class LateProposal(SpeculativeEngine):
    """Every draft but the first is judged by the law of the one before it."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        if proposal.q is None:
            return proposal
        return replace(proposal, q=torch.cat([proposal.q[:, :1], proposal.q[:, :-1]], 1))


@mutant(
    FaultClass.PROPOSAL,
    f"{FAMILY}[micro-T=0.7 top_k=5 top_p=0.9 K=4]",
    drafter=drafting(WholeDrafter),
)
class UnfilteredProposal(SpeculativeEngine):
    """Drafts are drawn under top_k and top_p, and judged by the draft's whole law."""
