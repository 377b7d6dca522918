"""OpenVINO GenAI's continuous batching: plain, with a draft model, with prompt lookup.

Two pipelines, one that speculates and one that cannot; both take ids. ``stop`` is not declared:
stop strings are looked for in text. Nor are ``logprobs``, unless they are asked for: the engine's
are before penalties, temperature and filters, which is the contract's at temperature 0 alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from harness.adapters.openvino_models import has_attention, openvino_model
from harness.contract import Completion, FinishReason, Request, validate
from harness.pair_files import OnDisk

_CAPABILITIES = frozenset(
    {
        "greedy",
        "sampling",
        "top_k",
        "top_p",
        "min_p",
        "penalties",
        "min_new_tokens",
        "eos",
        "seed",
        "batch",
        "stream",
        "plain",
        "validates",
    }
)
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


class OpenvinoDecoder:
    """A ``ContinuousBatchingPipeline`` on a pair.

    Parameters
    ----------
    pair : OnDisk
    max_ngram : int
        Longest n-gram that prompt lookup matches; 0 takes the pair's draft.
    precision : str
        ``f32``, or ``default`` for what the engine chooses on this machine.
    logprobs : str
        ``none``; ``tokens`` for those that the engine gives of each token; ``score`` for what
        each adds to the engine's score of the text, which is the sum of them all.
    """

    def __init__(self, pair: OnDisk, max_ngram: int, precision: str, logprobs: str) -> None:
        if precision not in ("f32", "default"):
            raise ValueError(f"precision is {precision!r}: f32 or default")
        if logprobs not in ("none", "tokens", "score"):
            raise ValueError(f"logprobs is {logprobs!r}: none, tokens or score")
        self._pair, self._max_ngram, self._logprobs = pair, max_ngram, logprobs
        self._ids = itertools.count()
        self.versions = {name: metadata.version(name) for name in ("openvino", "openvino-genai")}
        self.capabilities = _CAPABILITIES | (set() if logprobs == "none" else {"logprobs"})
        self._hints = EXACT if precision == "f32" else {}
        self._pipelines: dict[bool, Any] = {}
        if not has_attention(pair.file("target", "hf")):
            self.capabilities = frozenset()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests together."""
        for request in requests:
            validate(request, self._pair)
        completions: dict[int, Completion] = {}
        for speculate in sorted({request.speculate for request in requests}):
            places = [i for i, request in enumerate(requests) if request.speculate == speculate]
            pipeline = self._pipeline(speculate)
            try:
                handles = {i: self._add(pipeline, requests[i]) for i in places}
                while pipeline.has_non_finished_requests():
                    pipeline.step()
            except Exception:
                del self._pipelines[speculate]  # what it was working on is still in it
                raise
            completions |= {i: self._completion(requests[i], handles[i]) for i in places}
        return [completions[i] for i in range(len(requests))]

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request, and yield what each step of the engine gave."""
        validate(request, self._pair)
        pipeline = self._pipeline(request.speculate)
        handle = self._add(pipeline, request)
        try:
            while pipeline.has_non_finished_requests():
                pipeline.step()
                while handle.can_read():
                    yield _read(handle).generated_ids
        finally:
            if pipeline.has_non_finished_requests():
                handle.cancel()
                pipeline.step()  # which lets go of it

    def _add(self, pipeline: Any, request: Request) -> Any:
        import numpy as np
        from openvino import Tensor
        from openvino_genai import GenerationConfig

        drafts = {"max_ngram_size": self._max_ngram} if self._max_ngram else {}
        config = GenerationConfig(
            **arguments(request, self._pair.vocab_size),
            **(
                drafts | {"num_assistant_tokens": request.draft_tokens} if request.speculate else {}
            ),
        )
        prompt = Tensor(np.array([request.prompt], dtype=np.int64))
        return pipeline.add_request(next(self._ids), prompt, config)

    def _completion(self, request: Request, handle: Any) -> Completion:
        tokens: list[int] = []
        logprobs: list[float] = []
        score = 0.0
        reason: FinishReason = "length"
        while handle.can_read():
            output = _read(handle)
            tokens += output.generated_ids
            logprobs += output.generated_log_probs
            if self._logprobs == "score" and logprobs:
                logprobs[-1] = added(output.score - score, output.generated_log_probs)
                score = output.score
            reason = "eos" if output.finish_reason.name == "STOP" else "length"
        return Completion(
            tokens=tokens, finish_reason=reason, logprobs=logprobs if request.logprobs else None
        )

    def _pipeline(self, speculate: bool) -> Any:
        from openvino_genai import ContinuousBatchingPipeline, SchedulerConfig

        if speculate not in self._pipelines:
            scheduler = SchedulerConfig()
            scheduler.cache_size = 1  # GiB
            scheduler.enable_prefix_caching = False
            model = openvino_model(self._pair.file("target", "hf"))
            properties = {**self._hints, **(self._drafts() if speculate else {})}
            self._pipelines[speculate] = ContinuousBatchingPipeline(
                model, scheduler, "CPU", properties
            )
        return self._pipelines[speculate]

    def _drafts(self) -> dict[str, Any]:
        from openvino_genai import draft_model

        if self._max_ngram:
            return {"prompt_lookup": True}
        model = openvino_model(self._pair.file("draft", "hf"))
        return {"draft_model": draft_model(model, "CPU", **self._hints)}


def arguments(request: Request, vocab_size: int) -> dict[str, Any]:
    """A request in the words of OpenVINO's ``GenerationConfig``."""
    s = request.sampling
    ends = request.eos or (vocab_size,)  # it wants one: an id that there is not
    found: dict[str, Any] = {
        "max_new_tokens": request.max_new_tokens,
        "do_sample": not s.greedy,
        "eos_token_id": ends[0],
        "stop_token_ids": set(ends),
        "min_new_tokens": min(s.min_new_tokens, request.max_new_tokens),
        "repetition_penalty": s.repetition_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "logprobs": int(request.logprobs),
    }
    if not s.greedy:
        found |= {"temperature": s.temperature, "top_p": s.top_p, "min_p": s.min_p}
        # Without one it is the same in every call.
        found["rng_seed"] = random.getrandbits(31) if request.seed is None else request.seed
        if s.top_k:
            found["top_k"] = s.top_k
    return found


def added(score: float, logprobs: Sequence[float]) -> float:
    """What the last token of a step adds to the score, beyond what those before it explain."""
    return score - sum(logprobs[:-1])


def _read(handle: Any) -> Any:
    (output,) = handle.read().values()
    return output


def draft(pair: OnDisk, precision: str = "f32", logprobs: str = "none") -> OpenvinoDecoder:
    """Drafts from the pair's draft."""
    return OpenvinoDecoder(pair, 0, precision, logprobs)


def lookup(
    pair: OnDisk, max_ngram: int = 3, precision: str = "f32", logprobs: str = "none"
) -> OpenvinoDecoder:
    """Drafts that continue the latest tokens as they went on before."""
    return OpenvinoDecoder(pair, max_ngram, precision, logprobs)
