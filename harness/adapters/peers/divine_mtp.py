"""divine-mtp: greedy decoding with K heads of its own, with random weights. It knows no EOS."""

from __future__ import annotations

from functools import cache
from typing import Any

from harness.adapters.peers.base import GREEDY, Peer, completion, ids, randomised
from harness.contract import Completion, Request
from harness.pair_files import OnDisk


class DivineMtp(Peer):
    """``DivineMtpInferenceEngine.generate``."""

    package = "divine-mtp"
    capabilities = GREEDY

    def __init__(self, pair: OnDisk) -> None:
        super().__init__(pair)
        self._engine = cache(self._make)

    def _make(self, k: int) -> Any:
        from divine_mtp import DivineMtpInferenceEngine, attach_divine_mtp

        wrapper = attach_divine_mtp(self.target, num_heads=k, rank=16)
        randomised(wrapper.mtp, 1.0)
        return DivineMtpInferenceEngine(wrapper)

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        engine = self._engine(request.draft_tokens)
        said = engine.generate(ids(request), request.max_new_tokens)
        return completion(said.token_ids[len(request.prompt) :], request)
