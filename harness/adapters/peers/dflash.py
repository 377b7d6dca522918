"""dflash: two drafters on the target's hidden states, with random weights.

The pair's draft is not used, and few drafts are right: acceptance is rare where ids are many. A
block is the last token and K drafts, and of one token it is decoding without speculation.
"""

from __future__ import annotations

from functools import partial

from harness.adapters.peers.base import GREEDY, SAMPLED, Peer, completion, ids, randomised
from harness.contract import Completion, Request
from harness.pair_files import OnDisk


class DFlash(Peer):
    """``dflash_generate``.

    Parameters
    ----------
    drafter : str
        Name of the class of the drafter.
    """

    package = "dflash"
    capabilities = GREEDY | SAMPLED | {"top_k", "top_p", "eos", "plain"}

    def __init__(self, pair: OnDisk, drafter: str) -> None:
        from dflash import model
        from transformers import Qwen3Config

        super().__init__(pair)
        width = self.target.config.hidden_size
        config = Qwen3Config(
            vocab_size=self.target.config.vocab_size,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=width // 4,
            num_target_layers=2,
            target_layer_ids=[0],
            mask_token_id=0,
            conv_kernel_size=2,
            conv_group_size=8,
            selector_rank=8,
            selector_top_k=8,
        )
        self._drafter = randomised(getattr(model, drafter)(config), 1.0)

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        from dflash.model import dflash_generate

        s, k = request.sampling, request.draft_tokens if request.speculate else 0
        said = dflash_generate(
            self._drafter,
            self.target,
            ids(request),
            request.max_new_tokens,
            list(request.eos) or None,
            s.temperature,
            s.top_p,
            s.top_k,
            block_size=k + 1,
        )
        return completion(said[0, len(request.prompt) :].tolist(), request)


first = partial(DFlash, drafter="DFlashDraftModel")
second = partial(DFlash, drafter="DFlash2DraftModel")
