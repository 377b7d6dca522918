"""speculative-decoding: its functions over the pair's models, which are given its model's form.

Its own ``Decoder`` is trained from nothing and no Llama; what is judged is its loop, its rule and
its alignment of rows, not the mask of that class. It knows no EOS and no seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, BatchedPeer, completion
from harness.contract import Completion, Request
from harness.pair_files import OnDisk


class _Cache(NamedTuple):
    cached_kvs: torch.Tensor  # [rows, layers, 2, heads, n, d]
    embeds: None


class _Net:
    """A transformers model behind the call that the library makes of a net."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(
        self, text: torch.Tensor, return_cache: bool, cache: Any = None, seq_start_pos: Any = None
    ) -> Any:
        from transformers import DynamicCache

        rows, length = text.shape
        start = torch.zeros(rows).long() if seq_start_pos is None else seq_start_pos
        known, seen = DynamicCache(), 0
        if cache is not None:
            seen = cache[0].shape[-2]
            for layer, both in enumerate(cache[0].unbind(1)):
                known.update(*both.unbind(1), layer)
        columns = torch.arange(length)
        output = self._model(
            text[:, seen:],
            past_key_values=known,
            attention_mask=(columns >= start[:, None]).long(),
            position_ids=(columns - start[:, None]).clamp(min=0)[:, seen:],
        )
        kept = [torch.stack([layer.keys, layer.values], 1) for layer in known.layers]
        return output.logits, _Cache(torch.stack(kept, 1), None)


class SpeculativeDecoding(BatchedPeer):
    """``speculative_decoding``, ``base_decoding`` without speculation."""

    package = "speculative-decoding"
    capabilities = GREEDY | SAMPLED | {"top_k", "batch", "plain"}

    def __init__(self, pair: OnDisk) -> None:
        super().__init__(pair)
        self._nets = _Net(self.target), _Net(self.draft)

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
