"""sequential-speculative-decoding: three rules of verification, from text to text."""

from __future__ import annotations

from functools import partial

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
from harness.pair_files import OnDisk


class Sequential(Peer):
    """``speculative_generate`` by one of its methods, ``baseline_generate`` without speculation."""

    package = "sequential-speculative-decoding"
    capabilities = GREEDY | SAMPLED | {"eos", "plain"}
    crops = False

    def __init__(self, pair: OnDisk, method: str) -> None:
        super().__init__(pair)
        self._method = method

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        from seqspecdecod.generation import baseline_generate, speculative_generate

        target, t = self.target, request.sampling.temperature
        prompt, length = (IdTokenizer(one_eos(request)), request.prompt), request.max_new_tokens
        if request.speculate:
            said = speculative_generate(
                self.draft,
                target,
                *prompt,
                max_new_tokens=length,
                gamma=request.draft_tokens,
                draft_temperature=t,
                target_temperature=t,
                method=self._method,
            )
        else:
            said = baseline_generate(target, *prompt, length, target_temperature=t)
        return completion(from_text(said["text"]), request)


standard = partial(Sequential, method="standard")
naive = partial(Sequential, method="naive_hsd")
capped = partial(Sequential, method="capped_hsd")
