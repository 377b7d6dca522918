"""Model pairs made from a seed in well under a second, small enough to enumerate.

The targets have full support but peaked laws that depend on the whole context, so that a stale
cache row or a wrong position shows at once. The drafts are named by what they are for.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

CONTEXT = 128  # positions of every tiny model
WINDOW = 8  # of the sliding-window pair

_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def _llama(vocab: int) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **_SHAPE))


def _mistral(vocab: int) -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(vocab_size=vocab, sliding_window=WINDOW, **_SHAPE))


def _gpt2(vocab: int) -> PreTrainedModel:
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=CONTEXT,
        n_embd=32,
        n_layer=2,
        n_head=4,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return GPT2LMHeadModel(config)


def _mamba(vocab: int) -> PreTrainedModel:
    config = MambaConfig(
        vocab_size=vocab,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        time_step_min=0.1,  # long steps: much of a token goes into the state
        time_step_max=1.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    # That kernels for large models are not installed matters to no tiny one.
    logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)
    return MambaForCausalLM(config)


ARCHITECTURES: Mapping[str, Callable[[int], PreTrainedModel]] = {
    "llama": _llama,
    "mistral": _mistral,
    "gpt2": _gpt2,
    "mamba": _mamba,
}


def make_target(architecture: str, vocab: int, seed: int) -> PreTrainedModel:
    """A random model of logits with standard deviation about 2, and context in every layer."""
    model = _frozen(ARCHITECTURES[architecture], vocab)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            embedding = "embed" in name or "wte" in name or "wpe" in name
            # GPT-2 stores its projections transposed, which for the standard deviation of a
            # nearly square random matrix does not matter.
            scale = 1.0 if embedding else 1.3 / weight.shape[1] ** 0.5
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
    head = model.get_output_embeddings().weight
    head.copy_(torch.randn(head.shape, generator=generator) * 2.0 / head.shape[1] ** 0.5)
    return model


def make_draft(kind: str, target: PreTrainedModel, architecture: str, seed: int) -> PreTrainedModel:
    """A draft for ``target``.

    Parameters
    ----------
    kind : str
        ``good``, the target with noise on its weights; ``bad``, a stranger; ``self``, the target;
        ``hostile``, which likes best what the target likes least.
    """
    vocab = int(target.config.vocab_size)
    if kind == "bad":
        return make_target(architecture, vocab, seed + 1)
    draft = copy.deepcopy(target)
    if kind == "good":
        generator = torch.Generator().manual_seed(seed + 2)
        for weight in draft.parameters():
            if weight.dim() == 2:
                noise = torch.randn(weight.shape, generator=generator)
                weight.data.add_(noise * 0.05 * weight.data.std())
    elif kind == "hostile":
        draft.get_output_embeddings().weight.data.neg_()
    elif kind != "self":
        raise ValueError(f"unknown draft {kind!r}: good, bad, self or hostile")
    return draft


def tie_outputs(target: PreTrainedModel) -> None:
    """Give every odd token the output row of its even neighbour: exact ties everywhere."""
    head = target.get_output_embeddings().weight.data
    head[1::2] = head[0::2]


def pad_outputs(model: PreTrainedModel, columns: int) -> None:
    """Widen the output matrix by columns that mean no token, and mostly have the largest logits.

    As checkpoints do whose vocabulary was rounded up. For every other column there is one that
    points the other way: one of the two is always high.
    """
    vocab = int(model.config.vocab_size)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.resize_token_embeddings(vocab + columns, mean_resizing=False)
    head = model.get_output_embeddings().weight.data
    head[vocab::2] = 4 * head[: len(head[vocab::2])]
    head[vocab + 1 :: 2] = -head[vocab : len(head) - 1 : 2]
    model.requires_grad_(False)


@torch.no_grad()
def _frozen(build: Callable[[int], PreTrainedModel], vocab: int) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # whatever the constructor draws is overwritten, but keep it fixed
        model = build(vocab)
    model.requires_grad_(False)
    return model.eval()
