"""core-deepinfer: greedy decoding of models with ``prefill`` and ``step``, which the pair's get.

Its own model is random and of another architecture; what is judged is its loop and its rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from harness.adapters.peers.base import GREEDY, Peer, completion, one_eos
from harness.contract import Completion, Request
from harness.pair_files import OnDisk, UnsupportedPairError


class _Forward(NamedTuple):
    logits: Any  # numpy [n, V]
    state: tuple[int, ...]


class _Recomputing:
    """A transformers model behind the library's protocol: its state is the text so far."""

    def __init__(self, model: Any, vocab_size: int) -> None:
        self._model, self.vocab_size = model, vocab_size

    def tokens(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(tokens)

    def prefill(self, tokens: Sequence[int]) -> _Forward:
        logits = self._model(torch.tensor([list(tokens)])).logits[0].numpy()
        return _Forward(logits, tuple(tokens))

    def step(self, state: Sequence[int], token: int) -> _Forward:
        return self.prefill((*state, token))


class CoreDeepInfer(Peer):
    """``generate_speculative``, ``generate`` without speculation."""

    package = "core-deepinfer"
    capabilities = GREEDY | {"eos", "plain"}
    crops = False

    def __init__(self, pair: OnDisk) -> None:
        super().__init__(pair)
        if self.target.config.vocab_size != self.draft.config.vocab_size:
            raise UnsupportedPairError("core-deepinfer wants outputs of the same width")
        self._pair = [_Recomputing(m, pair.vocab_size) for m in (self.target, self.draft)]

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        from core_deepinfer.speculative import generate, generate_speculative

        ends = {"max_tokens": request.max_new_tokens, "eos_id": one_eos(request)}
        k = request.draft_tokens
        if request.speculate:
            said = generate_speculative(*self._pair, request.prompt, draft_width=k, **ends)
        else:
            said = generate(self._pair[0], request.prompt, **ends)
        return completion(said.tokens, request)
