"""vLLM's OpenAI server (``vllm serve``).

Field names are from vllm/entrypoints/openai/completion/protocol.py of vLLM 0.32. ``token_ids``
hold the stop id that ended an output, its text does not. Speculation is fixed when the server
starts: plain decoding is a second server. One that speculates refuses ``min_p`` and ``logit_bias``:
they are declared where neither server does. What ``logprobs`` are of
is the server's ``--logprobs-mode``, by default not the sampling law: they are not declared; with
``processed_logprobs`` say ``also=logprobs``.
"""

from __future__ import annotations

from typing import Any

from harness.adapters.http_apis.completions import CompletionsApi
from harness.contract import Request


class Vllm(CompletionsApi):
    """vLLM."""

    engine = "vllm"
    capabilities = frozenset(
        {
            "greedy",
            "sampling",
            "top_k",
            "top_p",
            "min_p",
            "penalties",
            "min_new_tokens",
            "logit_bias",
            "eos",
            "seed",
        }
    )

    doubtful = frozenset({"min_p", "logit_bias"})

    def body(self, request: Request) -> dict[str, Any]:
        """``ignore_eos``: the request's own EOS ids are the only ones."""
        s = request.sampling
        body = super().body(request) | {
            "top_k": 0 if s.greedy else s.top_k,
            "min_p": 0.0 if s.greedy else s.min_p,
            "repetition_penalty": s.repetition_penalty,
            "min_tokens": min(s.min_new_tokens, request.max_new_tokens),  # more is refused
            "stop_token_ids": list(request.eos),
            "ignore_eos": True,
            "return_token_ids": True,
        }
        if request.logprobs:  # of ids: a server without a tokenizer has no texts to give
            body |= {"logprobs": 1, "return_tokens_as_token_ids": True}
        return body


API = Vllm
