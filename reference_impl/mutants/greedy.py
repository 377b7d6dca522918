"""Greedy verification that is wrong where a block is, and right for single tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal


@mutant(FaultClass.GREEDY, "greedy.ties", id="F43", source="ohdearquant/lattice#280 (PR 281)")
class LastMaximum(SpeculativeEngine):
    """Of tokens that tie exactly, a block takes the last one."""

    def best(self, processed: Tensor) -> Tensor:
        if processed.shape[1] == 1:
            return super().best(processed)
        return processed.shape[-1] - 1 - processed.flip(-1).argmax(-1)


@mutant(
    FaultClass.GREEDY,
    "greedy.identity",
    id="F44",
    source="ml-explore/mlx-lm#1109 (second fault)",
)
class NoisyBlock(SpeculativeEngine):
    """The logits of a block are computed far less exactly than those of a single token."""

    noise = 0.05

    def rows(self, logits: Tensor) -> Tensor:
        block = logits.shape[1]
        if block == 1:
            return logits
        return logits + self.noise * torch.cos(1e4 * logits + block)


@mutant(FaultClass.GREEDY, "greedy.identity", subtle={"share": 0.9})
class ReducedArgmax(SpeculativeEngine):
    """A block's argmax is taken over the columns of a draft that knows fewer tokens."""

    share = 0.5

    def best(self, processed: Tensor) -> Tensor:
        known = processed.shape[-1]
        if processed.shape[1] > 1:
            known = int(self.share * known)
        return super().best(processed[..., :known])


@mutant(
    FaultClass.ACCEPTANCE,
    "greedy.identity",
    "distribution.evidence",
    id="F59",
    source="hao-ai-lab/LookaheadDecoding#62",
)
class LastAcceptedRepeated(SpeculativeEngine):
    """In place of every accepted draft stands the last of them."""

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        emitted = super().emit(proposal, accepted, chosen, count)
        last = emitted.gather(1, (accepted - 1).clamp(min=0).unsqueeze(1))
        place = torch.arange(emitted.shape[1], device=self.device)
        return torch.where(place < accepted.unsqueeze(1), last, emitted)
