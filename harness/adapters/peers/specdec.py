"""specdec: sampling from text to text. It knows no temperature and no EOS."""

from __future__ import annotations

from harness.adapters.peers.base import SAMPLED, IdTokenizer, Peer, completion, from_text, tempered
from harness.contract import Completion, Request
from harness.pair_files import OnDisk


class SpecDec(Peer):
    """``SpecDecoder`` on the pair, whose logits are those of the request's temperature."""

    package = "specdec"
    capabilities = SAMPLED | {"plain"}
    crops = False

    def __init__(self, pair: OnDisk) -> None:
        from specdec.decoder import SpecDecoder

        super().__init__(pair)
        self._decoder = SpecDecoder.__new__(SpecDecoder)  # it would look for a tokenizer
        vars(self._decoder).update(
            small_model=self.draft, big_model=self.target, tokenizer=IdTokenizer(), device="cpu"
        )

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        prompt, n = request.prompt, request.max_new_tokens
        with tempered(request.sampling.temperature, self.target, self.draft):
            if request.speculate:
                text = self._decoder.spec_gen(prompt, n, request.draft_tokens)
            else:
                text = self._decoder.autoregressive_gen(prompt, n)
        return completion(from_text(text)[len(prompt) :], request)
