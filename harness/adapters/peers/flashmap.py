"""flashmap: its own drafter on the target's hidden states, with random weights, one for every K.

The pair's draft is not used, and few drafts are right: acceptance is rare where ids are many.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, Peer, completion, ids, randomised
from harness.contract import Completion, Request
from harness.pair_files import OnDisk, UnsupportedPairError


class FlashMap(Peer):
    """``FlashMapDraftModel.spec_generate``."""

    package = "flashmap"
    capabilities = GREEDY | SAMPLED | {"eos"}

    def __init__(self, pair: OnDisk) -> None:
        super().__init__(pair)
        if not hasattr(self.target.get_decoder(), "layers"):
            raise UnsupportedPairError("flashmap hooks into get_decoder().layers of the target")
        config = self.target.config
        if config.vocab_size < config.hidden_size:
            # It factors E^T E of the embedding E, which then has not full rank.
            raise UnsupportedPairError("flashmap wants as many ids as the target's states are wide")
        self._drafter = cache(self._make)

    def _make(self, k: int) -> Any:
        from flashmap import FlashMapConfig, FlashMapDraftModel

        config = self.target.config
        width = {"target_hidden_size": config.hidden_size, "hidden_size": config.hidden_size}
        small = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        time = {"cond_dim": 16, "time_embed_dim": 16}
        drafter = FlashMapConfig(
            "target",
            vocab_size=config.vocab_size,
            target_layer_ids=(0,),
            block_size=k,
            **width,
            **small,
            **time,
        )
        with torch.random.fork_rng():  # made in a request, and no part of its randomness
            return randomised(FlashMapDraftModel(drafter), 1.0)

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        said = self._drafter(request.draft_tokens).spec_generate(
            self.target,
            ids(request),
            request.max_new_tokens,
            request.sampling.temperature,
            stop_token_ids=list(request.eos),
        )
        return completion(said.sequences[0, len(request.prompt) :].tolist(), request)
