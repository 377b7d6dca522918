"""uarc: its transformers backend, with and without a draft model. K changes as it goes, up to K.

Its sampling parameters are those of ``generate``, whose answer with a draft model is greedy.
"""

from __future__ import annotations

from typing import Any

from harness.adapters.peers.base import GREEDY, IdTokenizer, Peer, completion
from harness.contract import Completion, Request
from harness.pair_files import OnDisk


class Uarc(Peer):
    """``HuggingFaceBackend.generate``."""

    package = "uarc"
    capabilities = GREEDY | {"sampling", "top_p", "eos", "plain"}

    def __init__(self, pair: OnDisk) -> None:
        from uarc.backends.huggingface import HuggingFaceBackend

        super().__init__(pair)
        self._backend = HuggingFaceBackend("target")
        # What its ``load`` does, which would look for a tokenizer.
        self._backend._model, self._backend._tokenizer = self.target, IdTokenizer()

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        s = request.sampling
        self.target.generation_config.eos_token_id = list(request.eos) or None
        self._backend._spec_engine = (
            self._engine(request.draft_tokens) if request.speculate else None
        )
        said = self._backend.generate(
            request.prompt, request.max_new_tokens, s.temperature, s.top_p
        )
        return completion(said["token_ids"], request)

    def _engine(self, k: int) -> Any:
        from uarc.core.config import EADSConfig
        from uarc.scheduling.eads import EADSScheduler
        from uarc.scheduling.eads_engine import EADSSpeculativeEngine

        scheduler = EADSScheduler(EADSConfig(base_k=k, max_k=k, min_k=1))
        return EADSSpeculativeEngine(self.target, self.draft, scheduler)
