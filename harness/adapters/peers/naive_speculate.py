"""naive-speculate: steps of a draft model at temperature 1 or greedy. The loop is the adapter's.

It is that of the library's own program: it feeds the last token back, or the last two where all
drafts were accepted. It ends at an EOS that ends a step, and takes no more than was asked for.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, Peer, completion, ids, one_eos, tempered
from harness.contract import Completion, Request


class NaiveSpeculate(Peer):
    """``SpeculativeDecoder.decode``, ``AutoregressiveDecoder.decode`` without speculation."""

    package = "naive-speculate"
    capabilities = GREEDY | SAMPLED | {"eos", "plain"}

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        decode = self._rounds if request.speculate else self._plain
        with tempered(request.sampling.temperature, self.target, self.draft):
            return completion(decode(request), request)

    def _plain(self, request: Request) -> list[int]:
        from naive_speculate.autoregress.decoder import AutoregressiveDecoder
        from naive_speculate.infer.kvcache.dynamic_no_update import DynamicNoUpdateCache

        decoder = AutoregressiveDecoder(_drafter(self.target, request), DynamicNoUpdateCache())
        said = decoder.decode(ids(request), request.max_new_tokens, _strategies(request)[0])
        return list(said.token_ids[0].tolist())

    def _rounds(self, request: Request) -> list[int]:
        from naive_speculate.infer.kvcache.dynamic_no_update import DynamicNoUpdateCache
        from naive_speculate.speculate.decoder import SpeculativeDecoder
        from naive_speculate.speculate.scorer import Scorer

        scorer = Scorer(_language_model(self.target, request))
        caches = DynamicNoUpdateCache(), DynamicNoUpdateCache()
        decoder = SpeculativeDecoder(_drafter(self.draft, request), scorer, *caches)
        text, k = ids(request), request.draft_tokens
        query, before = text, text.shape[1]
        while text.shape[1] - before < request.max_new_tokens:
            step = decoder.decode(query, k, *_strategies(request))
            text = torch.cat([text, step.token_ids], dim=1)
            query = text[:, -2:] if step.num_accepted_tokens == k else text[:, -1:]
            if set(step.token_ids[0].tolist()) & set(request.eos):
                break
        return list(text[0, before : before + request.max_new_tokens].tolist())


def _drafter(model: Any, request: Request) -> Any:
    from naive_speculate.infer.inferencer.basic import BasicInferencer
    from naive_speculate.speculate.drafter import Drafter

    return Drafter(BasicInferencer(_language_model(model, request)))


def _language_model(model: Any, request: Request) -> Any:
    from naive_speculate.infer.lm.qwen3 import Qwen3LanguageModel

    made = Qwen3LanguageModel.__new__(Qwen3LanguageModel)  # it would load a Qwen3 from the hub
    eos = one_eos(request)
    vars(made).update(hf_model=model, eos_token_id=-1 if eos is None else eos)
    return made


def _strategies(request: Request) -> tuple[Any, Any]:
    from naive_speculate.config.strategy import SampleStrategy, VerifyStrategy

    if request.sampling.greedy:
        return SampleStrategy.GREEDY, VerifyStrategy.GREEDY_MATCH
    return SampleStrategy.RANDOM, VerifyStrategy.SPECULATIVE_SAMPLING
