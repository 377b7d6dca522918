"""What the models of a pair take: bytes of their weights, and of the cache of one token.

On a CPU the peak of either arm cannot be measured in one process: memory that was given back stays
resident, and the second arm finds it there. What the draft adds is computed instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from harness.models import ModelPair


def footprint(pair: ModelPair) -> dict[str, int]:
    """Bytes by name, JSON types; empty for a pair whose weights are elsewhere.

    Returns
    -------
    dict of str to int
        ``target_weights``; ``draft_weights``, without those that it shares with the target;
        ``target_cache`` and ``draft_cache`` of one token of one request, left out for a model
        whose cache does not grow with the text.
    """
    if not isinstance(pair.target, nn.Module):
        return {}
    target, draft = (_storages(model) for model in (pair.target, pair.draft))
    found: dict[str, int | None] = {
        "target_weights": sum(target.values()),
        "draft_weights": sum(size for at, size in draft.items() if at not in target),
        "target_cache": cache_bytes(pair.target),
        "draft_cache": cache_bytes(pair.draft),
    }
    return {name: size for name, size in found.items() if size is not None}


def _storages(model: nn.Module) -> dict[int, int]:
    """Bytes of every storage by its address: a shared one counts once."""
    storages = [t.untyped_storage() for t in (*model.parameters(), *model.buffers())]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


def cache_bytes(model: PreTrainedModel) -> int | None:
    """Keys and values of one token in all layers, measured: two texts, one a token longer."""
    sizes = []
    with torch.inference_mode():
        for length in (1, 2):
            ids = torch.zeros(1, length, dtype=torch.int64, device=model.device)
            sizes.append(_cached(model(input_ids=ids, use_cache=True)))
    one, two = sizes
    return two - one if one is not None and two is not None and two > one else None


def _cached(output: Any) -> int | None:
    layers = getattr(getattr(output, "past_key_values", None), "layers", None)
    if not layers:
        return None
    found = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
    return sum(t.numel() * t.element_size() for t in found if isinstance(t, torch.Tensor))
