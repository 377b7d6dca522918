"""csaq-quant: a model that drafts with quantised weights and verifies with some of the rows whole.

Neither is the pair's target, so every layer that it made is given the target's weights back: draft,
verifier and the model without speculation are then one. The pair's draft is not used.
"""

from __future__ import annotations

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, IdTokenizer, Peer, completion, ids, one_eos
from harness.contract import Completion, Metrics, Request
from harness.pair_files import OnDisk, UnsupportedPairError


class Csaq(Peer):
    """``CSAQInferenceEngine.generate``."""

    package = "csaq-quant"
    capabilities = GREEDY | SAMPLED | {"top_p", "eos", "plain", "metrics"}

    def __init__(self, pair: OnDisk) -> None:
        from csaq import CSAQConfig, CSAQInferenceEngine, CSAQLinear, quantize

        super().__init__(pair)
        layers = self.target.named_modules()
        whole = {name: layer.weight for name, layer in layers if isinstance(layer, torch.nn.Linear)}
        text = [{"input_ids": torch.arange(pair.vocab_size)[None]}]
        config = CSAQConfig(target_bits=8.0, bit_options=[8])
        with torch.enable_grad():
            _, found = quantize(self.target.requires_grad_(True), text, config, verbose=False)
        self.target.requires_grad_(False)
        for name, layer in self.target.named_modules():
            if isinstance(layer, CSAQLinear):
                layer._get_weight_fp32 = lambda weight=whole[name]: weight
                layer._csaq_fp16_backup = whole[name][layer._csaq_hi_rows]
        if not found["causal_map"]:
            raise UnsupportedPairError("csaq-quant found no linear layers to quantise")
        self._engine = CSAQInferenceEngine(self.target, found["causal_map"], verbose=False)

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        s = request.sampling
        self._engine.tokenizer = IdTokenizer(one_eos(request))
        self.target.generation_config.eos_token_id = list(request.eos) or None
        said, report = self._engine.generate(
            ids(request),
            speculative=request.speculate,
            lookahead=request.draft_tokens,
            temperature=s.temperature,
            top_p=s.top_p,
            max_new_tokens=request.max_new_tokens,
            **({} if request.speculate else {"attention_mask": torch.ones_like(ids(request))}),
        )
        counts = Metrics(
            tokens=report.tokens_generated,
            target_calls=report.verify_calls,
            drafted=report.tokens_accepted + report.tokens_rejected,
            accepted=report.tokens_accepted,
            acceptance_rate=report.acceptance_rate,
        )
        tokens = said[0, len(request.prompt) :].tolist()
        return completion(tokens, request, metrics=counts if request.speculate else Metrics())
