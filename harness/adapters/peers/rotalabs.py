"""rotalabs-accel: draft and target from text to text. Its mode is greedy or sampling."""

from __future__ import annotations

import torch

from harness.adapters.peers.base import (
    GREEDY,
    SAMPLED,
    IdTokenizer,
    Peer,
    completion,
    from_text,
    one_eos,
)
from harness.contract import Completion, Request


class Rotalabs(Peer):
    """``speculative_decode``."""

    package = "rotalabs-accel"
    capabilities = GREEDY | SAMPLED | {"top_p", "eos"}

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        from rotalabs_accel.speculative.config import DecodingMode, SpeculativeConfig
        from rotalabs_accel.speculative.core import speculative_decode

        s = request.sampling
        config = SpeculativeConfig(
            lookahead_k=request.draft_tokens,
            max_new_tokens=request.max_new_tokens,
            temperature=s.temperature or 1.0,
            top_p=s.top_p,
            mode=DecodingMode.GREEDY if s.greedy else DecodingMode.SAMPLING,
        )
        text, _ = speculative_decode(
            self.draft,
            self.target,
            IdTokenizer(one_eos(request)),
            request.prompt,
            config,
            torch.device("cpu"),
        )
        return completion(from_text(text)[len(request.prompt) :], request)
