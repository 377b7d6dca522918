"""transformers' own ``generate``: plain, with an assistant model, with prompt lookup.

Batch 1, as transformers' assisted decoding is; its randomness is torch's global generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import StoppingCriteria

from harness.contract import Completion, Request, validate
from harness.models import ModelPair
from reference_impl.autoregressive import finished

_CAPABILITIES = frozenset(
    "greedy sampling top_k top_p min_p min_new_tokens logit_bias eos stop seed plain validates".split()
)


class _StopSequences(StoppingCriteria):  # type: ignore[misc]
    """Ends the output after any of the request's stop sequences."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        output = ids[0, len(self.request.prompt) :].tolist()
        over = any(tuple(output[-len(stop) :]) == stop for stop in self.request.stop)
        return torch.full((ids.shape[0],), over, device=ids.device)


class TransformersDecoder:
    """``generate`` with given speculation options.

    Parameters
    ----------
    pair : ModelPair
    speculation : callable
        Request -> keyword arguments of ``generate`` that switch speculation on.
    """

    capabilities = _CAPABILITIES

    def __init__(self, pair: ModelPair, speculation: Any) -> None:
        self._pair = pair
        self._speculation = speculation

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self._generate(request) for request in requests]

    def _generate(self, request: Request) -> Completion:
        validate(request, self._pair)
        if request.seed is not None:
            torch.manual_seed(request.seed)
        ids = torch.tensor([request.prompt], device=self._pair.device)
        arguments = _sampling(request) | (self._speculation(request) if request.speculate else {})
        if request.stop:
            arguments["stopping_criteria"] = [_StopSequences(request)]
        output = self._pair.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            eos_token_id=list(request.eos) or None,
            pad_token_id=0,
            **arguments,
        )
        tokens: list[int] = output[0, len(request.prompt) :].tolist()
        reason = finished(tokens, request) if tokens else None
        return Completion(tokens=tokens, finish_reason=reason or "length")


def _sampling(request: Request) -> dict[str, Any]:
    s = request.sampling
    arguments: dict[str, Any] = {"do_sample": not s.greedy}
    if not s.greedy:
        arguments |= {"temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p}
        if s.min_p:
            arguments["min_p"] = s.min_p
    if s.min_new_tokens:
        arguments["min_new_tokens"] = s.min_new_tokens
    if s.logit_bias:
        arguments["sequence_bias"] = {(token,): bias for token, bias in s.logit_bias.items()}
    return arguments


def assisted(pair: ModelPair) -> TransformersDecoder:
    """Assisted generation with the pair's draft, K fixed, no confidence threshold."""

    def speculation(request: Request) -> dict[str, Any]:
        draft = pair.draft.generation_config
        draft.num_assistant_tokens = request.draft_tokens
        draft.num_assistant_tokens_schedule = "constant"
        draft.assistant_confidence_threshold = 0.0
        return {"assistant_model": pair.draft}

    return TransformersDecoder(pair, speculation)


def prompt_lookup(pair: ModelPair, max_ngram: int = 3) -> TransformersDecoder:
    """Assisted generation with prompt lookup."""

    def speculation(request: Request) -> dict[str, Any]:
        return {
            "prompt_lookup_num_tokens": request.draft_tokens,
            "max_matching_ngram_size": max_ngram,
        }

    return TransformersDecoder(pair, speculation)
