"""speculative-decoding: its own ``Decoder`` with a Llama's weights. It knows no EOS and no seed.

Attention, rotations, masks, cache and the alignment of rows are the library's; norms, feed-forward
and head are the Llama's modules in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from harness.adapters.peers.base import GREEDY, BatchedPeer, completion
from harness.contract import Completion, Request
from harness.pair_files import OnDisk, UnsupportedPairError


def _decoder(model: Any) -> Any:
    from speculative_decoding.speculative_decoding import Decoder

    c = model.config
    if c.model_type != "llama":
        raise UnsupportedPairError(f"its Decoder can hold a Llama, and no {c.model_type}")
    heads, groups = c.num_attention_heads, c.num_attention_heads // c.num_key_value_heads
    made = Decoder(
        num_tokens=c.vocab_size,
        dim=c.hidden_size,
        depth=c.num_hidden_layers,
        heads=heads,
        dim_head=c.head_dim,
    )

    def for_every_head(weight: torch.Tensor) -> torch.Tensor:
        by_head = weight.view(-1, c.head_dim, c.hidden_size)
        return by_head.repeat_interleave(groups, 0).flatten(0, 1)

    for own, layer in zip(made.layers, model.model.layers, strict=True):
        attention, llama = own[0], layer.self_attn
        keys, values = (for_every_head(p.weight) for p in (llama.k_proj, llama.v_proj))
        attention.to_qkv.weight = nn.Parameter(torch.cat([llama.q_proj.weight, keys, values]))
        attention.norm, attention.to_out = layer.input_layernorm, llama.o_proj
        own[1] = nn.Sequential(layer.post_attention_layernorm, layer.mlp)
    made.token_emb = model.model.embed_tokens
    made.to_logits = nn.Sequential(model.model.norm, model.lm_head)
    return made.eval().requires_grad_(False)


class SpeculativeDecoding(BatchedPeer):
    """``speculative_decoding``, ``base_decoding`` without speculation."""

    package = "speculative-decoding"
    capabilities = GREEDY | {"sampling", "top_k", "batch", "plain"}

    def __init__(self, pair: OnDisk) -> None:
        super().__init__(pair)
        self._nets = _decoder(self.target), _decoder(self.draft)

    def alike(self, request: Request) -> tuple[Any, ...]:
        """All but the ids of the prompt."""
        s, k = request.sampling, request.draft_tokens if request.speculate else 0
        return len(request.prompt), s.temperature, s.top_k, k, request.max_new_tokens

    def together(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode requests that are alike in one call."""
        from speculative_decoding.speculative_decoding import base_decoding, speculative_decoding

        first, prompts = requests[0], torch.tensor([request.prompt for request in requests])
        top_k, length = first.sampling.top_k, len(first.prompt) + first.max_new_tokens
        how = {
            "temperature": first.sampling.temperature,
            # A share of the vocabulary, rounded up.
            "filter_thres": 1 - (top_k - 0.5) / self.vocab_size if top_k else 0.0,
        }
        if first.speculate:
            said, _ = speculative_decoding(*self._nets, prompts, length, first.draft_tokens, **how)
        else:
            said = base_decoding(self._nets[0], prompts, length, **how)
        return [completion(row.tolist(), r) for row, r in zip(said, requests, strict=True)]
