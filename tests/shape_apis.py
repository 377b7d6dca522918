"""The servers' side of each API: what a body asks for, and what the answer looks like."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair

Json = dict[str, Any]
OPENAI = (
    "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty "
    "seed stop stream stream_options suffix temperature top_p user"
)
TRTLLM = (
    "use_beam_search top_k top_p_min min_p repetition_penalty length_penalty early_stopping "
    "stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens "
    "spaces_between_special_tokens truncate_prompt_tokens return_context_logits detokenize "
    "add_special_tokens"
)


def text_of(ids: Sequence[int]) -> str:
    """Of a vocabulary without a tokenizer."""
    return "".join(f"<{token}>" for token in ids)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"<(\d+)>", text)))


class Shape(ABC):
    """The server's side of an API."""

    path: ClassVar[str]
    known: ClassVar[frozenset[str]] = frozenset()  # fields, where others are refused

    @abstractmethod
    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        """The answer to anything but a generation; None for a path that is not there."""

    @abstractmethod
    def request(self, body: Json) -> Request:
        """What a body asks for."""

    @abstractmethod
    def answer(self, body: Json, request: Request, completion: Completion) -> Json:
        """The answer to it."""

    @abstractmethod
    def events(
        self, body: Json, request: Request, pieces: Iterator[Completion]
    ) -> Iterator[Json | str]:
        """The events of its stream."""


def models(pair: ModelPair, **more: Any) -> Json:
    return {"object": "list", "data": [{"id": pair.name, "object": "model", **more}]}


class LlamaCpp(Shape):
    """llama-server."""

    path = "/completion"

    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        if path == "/props":
            return {"build_info": "b11434-shape", "total_slots": 4, "model_path": pair.name}
        if path == "/v1/models":
            return models(pair, meta={"n_vocab": pair.vocab_size, "n_ctx": pair.context_length})
        return {"content": text_of(body["tokens"])} if path == "/detokenize" else None

    def request(self, body: Json) -> Request:
        ends = [ids_of(text) for text in body["stop"]]
        used = body["samplers"]
        sampling = Sampling(
            temperature=body["temperature"],
            **{name: body[name] for name in ("top_k", "top_p", "min_p") if name in used},
            repetition_penalty=body["repeat_penalty"],
            presence_penalty=body["presence_penalty"],
            frequency_penalty=body["frequency_penalty"],
            logit_bias={
                token: -math.inf if bias is False else bias for token, bias in body["logit_bias"]
            },
        )
        assert used[:2] == ["penalties", "temperature"]
        assert body["cache_prompt"] is False
        return Request(
            prompt=tuple(body["prompt"]),
            max_new_tokens=body["n_predict"],
            sampling=sampling,
            seed=None if body["seed"] == -1 else body["seed"],
            eos=tuple(ids[0] for ids in ends if len(ids) == 1),
            stop=tuple(ids for ids in ends if len(ids) > 1),
            logprobs=body["n_probs"] > 0,
        )

    def answer(self, body: Json, request: Request, completion: Completion) -> Json:
        word = self._word(request, completion.tokens)
        metrics = completion.metrics
        assert metrics
        timings = {"prompt_ms": 0.0, "predicted_ms": 1000 * (metrics.seconds or 0.0)}
        if metrics.drafted:
            timings |= {"draft_n": metrics.drafted, "draft_n_accepted": metrics.accepted or 0}
        return {
            "content": text_of(completion.tokens).removesuffix(word),
            "tokens": completion.tokens if body["return_tokens"] else [],
            "stop": True,
            "tokens_predicted": len(completion.tokens),
            "stop_type": "word" if word else "limit",
            "stopping_word": word,
            "timings": timings,
            # Without those of a stop word, as the real one.
            "completion_probabilities": self._probabilities(body, completion)[
                : len(completion.tokens) - len(ids_of(word))
            ],
        }

    def events(
        self, body: Json, request: Request, pieces: Iterator[Completion]
    ) -> Iterator[Json | str]:
        tokens: list[int] = []
        for piece in pieces:
            tokens += piece.tokens
            probabilities = self._probabilities(body, piece) or [None] * len(piece.tokens)
            for token, probability in zip(piece.tokens, probabilities, strict=True):
                event: Json = {"content": text_of([token]), "tokens": [token], "stop": False}
                yield event | ({"completion_probabilities": [probability]} if probability else {})
        word = self._word(request, tokens)
        yield {
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "word" if word else "limit",
            "stopping_word": word,
        }

    @staticmethod
    def _probabilities(body: Json, completion: Completion) -> list[Json]:
        kind = "prob" if body["post_sampling_probs"] else "logprob"
        value = math.exp if body["post_sampling_probs"] else float
        pairs = zip(completion.tokens, completion.logprobs or (), strict=False)
        return [{"id": token, kind: value(p), f"top_{kind}s": []} for token, p in pairs]

    @staticmethod
    def _word(request: Request, tokens: Sequence[int]) -> str:
        if tokens[-1] in request.eos:
            return text_of(tokens[-1:])
        stops = [s for s in request.stop if tuple(tokens[-len(s) :]) == s]
        return text_of(stops[0]) if stops else ""


class Vllm(Shape):
    """vLLM."""

    path = "/v1/completions"

    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        if path == "/version":
            return {"version": "0.32.0+shape"}
        return models(pair, max_model_len=pair.context_length) if path == "/v1/models" else None

    def request(self, body: Json) -> Request:
        greedy = body["temperature"] == 0
        return Request(
            prompt=tuple(body["prompt"]),
            max_new_tokens=body["max_tokens"],
            sampling=Sampling(
                temperature=body["temperature"],
                top_k=0 if greedy else body.get("top_k", 0),
                top_p=body["top_p"],
                min_p=body.get("min_p", 0.0),
                repetition_penalty=body.get("repetition_penalty", 1.0),
                presence_penalty=body["presence_penalty"],
                frequency_penalty=body["frequency_penalty"],
                min_new_tokens=body.get("min_tokens", 0),
                logit_bias={int(t): bias for t, bias in body.get("logit_bias", {}).items()},
            ),
            seed=body.get("seed"),
            eos=tuple(body.get("stop_token_ids", ())),
            logprobs="logprobs" in body,
        )

    def answer(self, body: Json, request: Request, completion: Completion) -> Json:
        choice = self.choice(body, completion.tokens, completion.logprobs)
        return {"object": "text_completion", "choices": [choice | self.end(request, completion)]}

    def events(
        self, body: Json, request: Request, pieces: Iterator[Completion]
    ) -> Iterator[Json | str]:
        tokens: list[int] = []
        for piece in pieces:
            tokens += piece.tokens
            choice = self.choice(body, piece.tokens, piece.logprobs)
            yield {"choices": [choice | {"finish_reason": None}]}
        completion = Completion(tokens=tokens, finish_reason="length")
        last = self.choice(body, [], None) | self.end(request, completion)
        yield {"choices": [last]}
        yield "[DONE]"

    def choice(self, body: Json, tokens: list[int], logprobs: list[float] | None) -> Json:
        found: Json = {"index": 0, "text": text_of(tokens)}
        if body.get("return_token_ids"):
            found["token_ids"] = tokens
        if "logprobs" in body:
            found["logprobs"] = {
                "token_logprobs": logprobs or [-1.0] * len(tokens),
                "tokens": [text_of([token]) for token in tokens],
            }
        return found

    def end(self, request: Request, completion: Completion) -> Json:
        ended = completion.tokens[-1] in request.eos
        return {
            "finish_reason": "stop" if ended else "length",
            "stop_reason": completion.tokens[-1] if ended else None,
        }


class OpenAi(Vllm):
    """Nothing but OpenAI's fields, and text."""

    known = frozenset(OPENAI.split())

    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        return models(pair) if path == "/v1/models" else None


class TensorRtLlm(Vllm):
    """trtllm-serve: ids in place of text, and only fields that it knows."""

    known = frozenset(f"{OPENAI} {TRTLLM}".split())

    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        if path == "/version":
            return {"version": "1.2.0+shape"}
        return models(pair) if path == "/v1/models" else None

    def choice(self, body: Json, tokens: list[int], logprobs: list[float] | None) -> Json:
        assert body["include_stop_str_in_output"]
        whole = {"return_token_ids": not body["detokenize"]}
        return super().choice(body | whole, tokens, logprobs) | {"text": ""}


class SgLang(Shape):
    """SGLang's native API."""

    path = "/generate"

    def facts(self, path: str, pair: ModelPair, body: Json) -> Json | None:
        return {"version": "0.5.9+shape"} if path == "/get_server_info" else None

    def request(self, body: Json) -> Request:
        s = body["sampling_params"]
        assert s["ignore_eos"] is not bool(s["stop_token_ids"])  # the one switches the others off
        return Request(
            prompt=tuple(body["input_ids"]),
            max_new_tokens=s["max_new_tokens"],
            sampling=Sampling(
                temperature=s["temperature"],
                top_k=max(0, s["top_k"]),
                top_p=s["top_p"],
                min_p=s["min_p"],
                repetition_penalty=s["repetition_penalty"],
                presence_penalty=s["presence_penalty"],
                frequency_penalty=s["frequency_penalty"],
                min_new_tokens=s["min_new_tokens"],
                logit_bias={int(t): bias for t, bias in s.get("logit_bias", {}).items()},
            ),
            seed=s.get("sampling_seed"),
            eos=tuple(s["stop_token_ids"]),
            logprobs=body.get("return_logprob", False),
        )

    def answer(self, body: Json, request: Request, completion: Completion) -> Json:
        return self._so_far(request, completion.tokens, completion.logprobs)

    def events(
        self, body: Json, request: Request, pieces: Iterator[Completion]
    ) -> Iterator[Json | str]:
        tokens: list[int] = []
        for piece in pieces:
            tokens += piece.tokens
            yield self._so_far(request, tokens, None)
        yield "[DONE]"

    @staticmethod
    def _so_far(request: Request, tokens: list[int], logprobs: list[float] | None) -> Json:
        reason = None
        if tokens[-1] in request.eos:
            reason = {"type": "stop", "matched": tokens[-1]}
        elif len(tokens) == request.max_new_tokens:
            reason = {"type": "length", "length": len(tokens)}
        meta: Json = {"completion_tokens": len(tokens), "finish_reason": reason}
        if logprobs:
            triples = zip(logprobs, tokens, strict=True)
            meta["output_token_logprobs"] = [[value, token, None] for value, token in triples]
        return {"text": text_of(tokens), "output_ids": tokens, "meta_info": meta}


SHAPES: Mapping[str, Shape] = {
    "llama.cpp": LlamaCpp(),
    "vllm": Vllm(),
    "openai": OpenAi(),
    "trtllm": TensorRtLlm(),
    "sglang": SgLang(),
}
