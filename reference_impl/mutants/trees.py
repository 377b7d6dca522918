"""Branches that are confused with each other."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.branches import BranchDrafter, TwoBranches
from reference_impl.cache import CachedModel
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Drafter
from reference_impl.randomness import inverse_cdf

IDENTITY, FAMILY = "greedy.identity", "distribution.family"


def branches(pair: ModelPair) -> Drafter:
    """The two likeliest chains of the pair's draft."""
    return BranchDrafter(pair.draft, pair.vocab_size)


@mutant(FaultClass.TREE, IDENTITY, id="F58", source="sgl-project/sglang#15360", drafter=branches)
class FirstBranchKept(TwoBranches):
    """The cache rows of the first branch are kept whichever was entered."""

    def keep(self, target: CachedModel, rows: Tensor) -> None:
        target.select(torch.arange(len(rows), device=self.device))


@mutant(FaultClass.TREE, IDENTITY, FAMILY, drafter=branches)
class JudgedByOtherBranch(TwoBranches):
    """The second branch is judged by the laws that follow the first one."""

    def entered(self, logits: Tensor, rows: Tensor) -> Tensor:
        return logits[: len(rows)]


@mutant(FaultClass.TREE, FAMILY, drafter=branches)
class BranchesIndependent(TwoBranches):
    """The second branch is tried with p, though the first one was rejected."""

    def tried(self, p: Tensor, candidates: Tensor, u: Tensor) -> Tensor:
        left = p.double().scatter(1, candidates, 0.0)
        token = inverse_cdf(torch.where(left.sum(1, keepdim=True) > 0, left, p.double()), u[:, -1])
        for i in (1, 0):
            c = candidates[:, i : i + 1]
            token = torch.where(u[:, i] < p.gather(1, c).squeeze(1), c.squeeze(1), token)
        return token


@mutant(FaultClass.TREE, FAMILY, drafter=branches)
class RejectedBranchLeftIn(TwoBranches):
    """Where no branch is entered the token is drawn from p, rejected ones and all."""

    def tried(self, p: Tensor, candidates: Tensor, u: Tensor) -> Tensor:
        token = super().tried(p, candidates, u)
        entered = (token.unsqueeze(1) == candidates).any(1)
        return torch.where(entered, token, inverse_cdf(p, u[:, -1]))
