"""TensorRT-LLM's OpenAI server (``trtllm-serve``). Not run against the real server.

Field names are from tensorrt_llm/serve/openai_protocol.py and postprocess_handlers.py of 2026. It
answers ids in place of text where ``detokenize`` is off, leaves the stop id out of them unless
``include_stop_str_in_output`` is set, and refuses fields that it does not know. Its presence and
frequency penalties count the prompt, and the law behind its ``logprobs`` depends on the backend:
neither is declared. Speculation is fixed when the server starts: plain decoding is a second server.
"""

from __future__ import annotations

from typing import Any

from harness.adapters.http_apis import seed_of
from harness.adapters.http_apis.completions import CompletionsApi
from harness.contract import Request

LARGEST_SEED = 2**63 - 1


class TensorRtLlm(CompletionsApi):
    """TensorRT-LLM."""

    engine = "tensorrt-llm"
    capabilities = frozenset(
        {
            "greedy",
            "sampling",
            "top_k",
            "top_p",
            "min_p",
            "min_new_tokens",
            "logit_bias",
            "eos",
            "seed",
        }
    )

    def body(self, request: Request) -> dict[str, Any]:
        """``ignore_eos``: the request's own EOS ids are the only ones."""
        s = request.sampling
        body = super().body(request) | {
            # Greedy is the one most likely token: temperature 0 is left to some backends alone.
            "top_k": 1 if s.greedy else s.top_k,
            "min_p": 0.0 if s.greedy else s.min_p,
            "repetition_penalty": s.repetition_penalty,
            "min_tokens": s.min_new_tokens,
            "stop_token_ids": list(request.eos),
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "detokenize": False,
        }
        if (seed := seed_of(request, LARGEST_SEED)) is not None:
            body["seed"] = seed
        return body | ({"logprobs": 1} if request.logprobs else {})


API = TensorRtLlm
