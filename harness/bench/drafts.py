"""The same target with another draft: one that knows nothing of it, or the target itself."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from harness.models import ModelPair

SEED = 0


def with_draft(pair: ModelPair, choice: str) -> ModelPair:
    """The pair with its draft as one of ``tasks.DRAFTS``.

    ``right`` is the draft it has. ``mismatched`` is that one with the entries of each matrix
    shuffled: it costs the same, and has learned nothing. ``identical`` is the target.
    """
    if choice == "right":
        return pair
    draft = _shuffled(pair.draft) if choice == "mismatched" else copy.deepcopy(pair.target)
    kept = {role: path for role, path in pair._directories.items() if role == "target"}
    return replace(pair, draft=draft, loaded_with={}, _directories=kept)


@torch.no_grad()
def _shuffled(model: PreTrainedModel) -> PreTrainedModel:
    found = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(SEED)
    for weight in found.parameters():
        if weight.dim() > 1:
            order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
            weight.copy_(weight.flatten()[order].view_as(weight))
    return found
