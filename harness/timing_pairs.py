"""Pairs made from a seed that cost what real models cost, to measure speed where there are none.

Their text means nothing, and their draft is as good as it was made: the target's layers but the
first only retouch what the first one says, so a draft of that one layer agrees with the target
often, and how often is a number in the recipe. Acceptance is therefore an input of such a
benchmark, and only the time a result.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 2048
SEED = 1


@dataclass(frozen=True)
class Recipe:
    """Shape of a target, and how much its later layers change.

    Attributes
    ----------
    retouch : float
        Size of what a later layer adds, as a part of what the first one adds.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    retouch: float


RECIPES: Mapping[str, Recipe] = {
    # 0.3 billion parameters in a few wide layers: matrices that are large for a CPU.
    "wide-llama": Recipe(2048, 5632, 6, 16, 4, 8192, 0.1),
    # 1.2 billion, the shape of Llama-3.2-1B: for a GPU.
    "llama-1b": Recipe(2048, 8192, 16, 32, 8, 32768, 0.06),
}


@torch.no_grad()
def make(
    name: str, device: torch.device | str = "cpu"
) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Target and draft of a recipe, in float32; the draft shares what it has with the target."""
    recipe = RECIPES[name]
    config = LlamaConfig(
        vocab_size=recipe.vocab,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.device("meta"):
        target = LlamaForCausalLM(config)
    target.to_empty(device=device)
    target.model.rotary_emb = type(target.model.rotary_emb)(config).to(device)
    generator = torch.Generator(device).manual_seed(SEED)
    for parameter in target.parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=1.3 / parameter.shape[1] ** 0.5, generator=generator)
    target.model.embed_tokens.weight.normal_(generator=generator)
    target.lm_head.weight.normal_(std=2.0 / recipe.hidden**0.5, generator=generator)
    for layer in target.model.layers[1:]:
        for matrix in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            matrix.mul_(recipe.retouch)
    return target.eval(), _first_layer(target)


def _first_layer(target: LlamaForCausalLM) -> LlamaForCausalLM:
    """The target without its later layers."""
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = 1
    with torch.device("meta"):
        draft = LlamaForCausalLM(config)
    draft.model.embed_tokens, draft.lm_head = target.model.embed_tokens, target.lm_head
    draft.model.layers[0], draft.model.norm = target.model.layers[0], target.model.norm
    draft.model.rotary_emb = target.model.rotary_emb
    return draft.eval()
