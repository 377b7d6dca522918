"""SGLang's own API: POST /generate, ids in and ids out. Not run against the real server.

Field names are from docs/basic_usage/sampling_params.md, sampling_params.py and
tokenizer_manager.py of 2026. ``ignore_eos`` switches ``stop_token_ids`` off as well, so a request
with EOS ids also ends at the model's own, which is told as an error where the request does not name
it. Seeds hold only with ``--enable-deterministic-inference``: then say ``also=seed``. What its
logprobs are of depends on the version, and penalties on the kind of speculation: neither is
declared. Speculation is fixed when the server starts: plain decoding is a second server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.adapters.http_apis import Api, OwnEosError, seed_of
from harness.adapters.http_client import Server, ServerError
from harness.contract import Completion, FinishReason, Request
from harness.models import ModelPair

LARGEST_SEED = 2**31 - 1
TOP_K_OFF = -1
LARGEST_BIAS = 100.0


class Reason(msgspec.Struct):
    """Why an output ended."""

    type: str
    matched: int | str | None = None


class Meta(msgspec.Struct):
    """``output_token_logprobs`` are triples of log probability, id and text."""

    completion_tokens: int
    finish_reason: Reason | None = None
    output_token_logprobs: list[tuple[float | None, int, str | None]] = []


class Answer(msgspec.Struct):
    """An answer; in a stream each event has all ids so far, or the new ones alone."""

    output_ids: list[int]
    meta_info: Meta


class Info(msgspec.Struct):
    """GET /get_server_info."""

    version: str = "unknown"


class SgLang(Api):
    """SGLang."""

    path = "/generate"
    answer = event = Answer
    capabilities = frozenset(
        {"greedy", "sampling", "top_k", "top_p", "min_p", "min_new_tokens", "logit_bias", "eos"}
    )

    def __init__(
        self, server: Server, pair: ModelPair, model: str, fields: Mapping[str, Any]
    ) -> None:
        super().__init__(server, pair, model, fields)
        self.versions = {"sglang": server.ask("/get_server_info", None, Info).version}

    def body(self, request: Request) -> dict[str, Any]:
        """Every parameter is sent: what is missing is taken from the model's own defaults."""
        s = request.sampling
        sampling: dict[str, Any] = {
            "max_new_tokens": request.max_new_tokens,
            "min_new_tokens": min(s.min_new_tokens, request.max_new_tokens),  # more is refused
            "temperature": s.temperature,
            "top_k": s.top_k if s.top_k and not s.greedy else TOP_K_OFF,
            "top_p": 1.0 if s.greedy else s.top_p,
            "min_p": 0.0 if s.greedy else s.min_p,
            "repetition_penalty": s.repetition_penalty,
            "presence_penalty": s.presence_penalty,
            "frequency_penalty": s.frequency_penalty,
            "stop_token_ids": list(request.eos),
            "ignore_eos": not request.eos,
        }
        if s.logit_bias:
            sampling["logit_bias"] = {
                str(token): bias if math.isfinite(bias) else -LARGEST_BIAS
                for token, bias in s.logit_bias.items()
            }
        if (seed := seed_of(request, LARGEST_SEED)) is not None:
            sampling["sampling_seed"] = seed
        body = {"input_ids": request.prompt, "sampling_params": sampling}
        return body | ({"return_logprob": True} if request.logprobs else {})

    def completion(self, request: Request, answer: Answer) -> Completion:
        """``output_ids`` are the ids."""
        triples = answer.meta_info.output_token_logprobs
        return Completion(
            tokens=answer.output_ids,
            finish_reason=self._reason(request, answer.output_ids, answer.meta_info.finish_reason),
            logprobs=[-math.inf if p is None else p for p, _, _ in triples]
            if request.logprobs
            else None,
        )

    def piece(self, request: Request, event: Answer, seen: list[int]) -> tuple[list[int], bool]:
        """New ids: what is counted tells whether the event has the old ones too."""
        ids, meta = event.output_ids, event.meta_info
        if meta.completion_tokens not in (len(ids), len(seen) + len(ids)):
            raise ServerError(
                f"{self.server.url}: after {len(seen)} tokens, an event has {len(ids)} and counts "
                f"{meta.completion_tokens}"
            )
        new = ids[len(seen) :] if meta.completion_tokens == len(ids) else ids
        if meta.finish_reason:
            self._reason(request, seen + new, meta.finish_reason)
        return new, meta.finish_reason is not None

    def _reason(self, request: Request, ids: list[int], reason: Reason | None) -> FinishReason:
        if reason and reason.type == "length":
            return "length"
        if reason and reason.type == "stop" and ids and ids[-1] in request.eos:
            return "eos"
        if reason and reason.type == "stop":
            raise OwnEosError(self.server, request, ids, str(reason.matched))
        raise ServerError(f"{self.server.url}: an output ends by {reason}")


API = SgLang
