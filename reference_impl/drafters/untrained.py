"""Medusa heads and EAGLE layers that guess at random, for any target: exact, and of no use.

A decoder's output must not depend on how good its drafts are, so these are enough to test that;
those of ``fitted.py`` are accepted now and then, too.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, PreTrainedModel

from reference_impl.drafters.eagle import EagleLayer
from reference_impl.drafters.medusa import MedusaHeads

HEADS = 4


def untrained_medusa(target: PreTrainedModel, count: int = HEADS, seed: int = 1) -> MedusaHeads:
    """Heads whose blocks are random, and which share the target's last layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        heads = MedusaHeads(count, _width(target), target.get_output_embeddings())
        for name, parameter in heads.named_parameters():
            if ".linear." in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return heads.to(target.device, target.dtype).eval()


def untrained_eagle(target: PreTrainedModel, seed: int = 1) -> EagleLayer:
    """A random layer of the target's width."""
    width = _width(target)
    config = LlamaConfig(
        vocab_size=1,  # it has no embedding of its own
        hidden_size=width,
        intermediate_size=2 * width,
        num_attention_heads=max(1, width // 8),
        num_key_value_heads=max(1, width // 8),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = EagleLayer(config)
    return layer.to(target.device, target.dtype).eval()


def _width(target: PreTrainedModel) -> int:
    return int(target.get_input_embeddings().weight.shape[1])
