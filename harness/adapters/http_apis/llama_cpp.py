"""llama.cpp's ``llama-server``: POST /completion, ids in and ids out.

Field names are from tools/server/README.md and server-schema.cpp of build 11434. The server fixes
K and the kind of drafts when it starts, and has no switch per request: plain decoding is a second
server. It ends an output at its model's own end-of-generation ids and at stop *texts*; where every
id of the vocabulary has a text that no other can be mistaken for, as in tiny pairs, those say any
EOS and any stop sequence of ids, else neither is declared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.adapters.http_apis import Api, OwnEosError, seed_of, served_model
from harness.adapters.http_client import Server, ServerError
from harness.contract import Completion, FinishReason, Metrics, Request
from harness.models import ModelPair

LARGEST_SEED = 2**32 - 2  # the one above it asks for a random seed
RANDOM_SEED = -1
SMALL_VOCABULARY = 1024  # ids whose texts are asked for one by one


class Timings(msgspec.Struct):
    """What the server counted and timed; drafts only where there were any."""

    prompt_ms: float
    predicted_ms: float
    draft_n: int = 0
    draft_n_accepted: int = 0


class Probability(msgspec.Struct):
    """Of one emitted token: ``prob`` after all samplers, or ``logprob`` before them."""

    prob: float | None = None
    logprob: float | None = None


class Answer(msgspec.Struct):
    """A completion; of a stream, the last event has ``stop``."""

    tokens: list[int]
    stop: bool = True
    stop_type: str = "none"
    timings: Timings | None = None
    completion_probabilities: list[Probability] = []


class Props(msgspec.Struct):
    """What the server is."""

    build_info: str = "unknown"
    total_slots: int = 1


class Text(msgspec.Struct):
    """Of ids."""

    content: str


class LlamaCpp(Api):
    """llama-server."""

    path = "/completion"
    answer = event = Answer
    capabilities = frozenset(
        {
            "greedy",
            "sampling",
            "top_k",
            "top_p",
            "min_p",
            "logit_bias",
            "seed",
            "logprobs",
            "metrics",
        }
    )

    def __init__(
        self, server: Server, pair: ModelPair, model: str, fields: Mapping[str, Any]
    ) -> None:
        super().__init__(server, pair, model, fields)
        props = server.ask("/props", None, Props)
        self.versions = {"llama.cpp": props.build_info}
        self.together = max(1, props.total_slots)
        meta = served_model(server, model).meta or {}
        known = meta.get("n_vocab", pair.vocab_size)
        if not isinstance(known, int) or known < pair.vocab_size:
            raise ValueError(
                f"the model behind {server.url} knows {known} ids, the pair {pair.name} uses "
                f"{pair.vocab_size}: the server has loaded another model"
            )
        self._texts = self._unmistakable_texts()
        if self._texts:
            self.capabilities |= {"eos", "stop"}

    def body(self, request: Request) -> dict[str, Any]:
        """Samplers are named in the contract's order, so that no other one has a say."""
        s = request.sampling
        seed = seed_of(request, LARGEST_SEED)
        filters = {"top_k": s.top_k, "top_p": s.top_p, "min_p": s.min_p}
        ends = [*((token,) for token in request.eos), *request.stop]
        return {
            "prompt": request.prompt,
            "n_predict": request.max_new_tokens,
            "temperature": s.temperature,
            "samplers": ["penalties", "temperature", *([] if s.greedy else filters)],
            **filters,
            "repeat_penalty": s.repetition_penalty,
            "presence_penalty": s.presence_penalty,
            "frequency_penalty": s.frequency_penalty,
            "repeat_last_n": self.pair.context_length,
            "logit_bias": [
                [token, bias if math.isfinite(bias) else False]
                for token, bias in s.logit_bias.items()
            ],
            "seed": RANDOM_SEED if seed is None else seed,
            "stop": [self._text(end) for end in ends],
            # A law is what is left after all samplers; that of greedy decoding is a point, so the
            # contract asks for the softmax instead.
            "n_probs": int(request.logprobs),
            "post_sampling_probs": not s.greedy,
            "return_tokens": True,
            "cache_prompt": False,  # logits of a cached prompt are computed in other batches
        }

    def generate(self, request: Request) -> Completion:
        """An answer has no probabilities of the stop text that ended it, but a stream has."""
        if not (request.logprobs and (request.eos or request.stop)):
            return super().generate(request)
        events = [event for _, event in self.pieces(request)]
        whole = events[-1]
        whole.tokens = [token for event in events for token in event.tokens]
        whole.completion_probabilities = [
            probability for event in events for probability in event.completion_probabilities
        ]
        return self.completion(request, whole)

    def completion(self, request: Request, answer: Answer) -> Completion:
        """What an answer says."""
        return Completion(
            tokens=answer.tokens,
            finish_reason=self._reason(request, answer, answer.tokens),
            logprobs=[_log(p) for p in answer.completion_probabilities]
            if request.logprobs
            else None,
            metrics=_metrics(answer),
        )

    def piece(self, request: Request, event: Answer, seen: list[int]) -> tuple[list[int], bool]:
        """One id an event; the last event has none, and says why."""
        if event.stop:
            self._reason(request, event, seen)
        return event.tokens, event.stop

    def _reason(self, request: Request, answer: Answer, tokens: list[int]) -> FinishReason:
        if answer.stop_type == "limit":
            return "length"
        if answer.stop_type == "word":
            # Of two texts that end here, the server names the one that begins first.
            return "eos" if tokens[-1:] and tokens[-1] in request.eos else "stop"
        if answer.stop_type != "eos":
            raise ServerError(f"{self.server.url}: an output ends by {answer.stop_type!r}")
        if not tokens or tokens[-1] not in request.eos:
            raise OwnEosError(self.server, request, tokens, "eos")
        return "eos"

    def _text(self, ids: Sequence[int]) -> str:
        """What a stop sequence of ids is as a text; only asked where ``stop`` is declared."""
        if not self._texts:
            raise ValueError("this vocabulary has no stop texts that mean just these ids")
        return "".join(self._texts[token] for token in ids)

    def _unmistakable_texts(self) -> list[str]:
        """The text of every id, or nothing where a text may be found where its id is not."""
        if self.pair.vocab_size > SMALL_VOCABULARY:
            return []
        texts = [
            self.server.ask("/detokenize", {"tokens": [token]}, Text).content
            for token in range(self.pair.vocab_size)
        ]
        return texts if unmistakable(texts) else []


def unmistakable(texts: Sequence[str]) -> bool:
    """Whether a text of some ids is found nowhere but where these ids are.

    So it is if all are single characters, or if each begins with a character that no other place
    has, and ends with such a one: ``<12>``.
    """
    if not all(texts) or len(set(texts)) < len(texts):
        return False
    if all(len(text) == 1 for text in texts):
        return True
    first, last = ({text[place] for text in texts} for place in (0, -1))
    elsewhere = {character for text in texts for character in text[1:-1]}
    alone = first.isdisjoint(last) and elsewhere.isdisjoint(first | last)
    return alone and all(len(text) > 1 for text in texts)


def _log(probability: Probability) -> float:
    if probability.logprob is not None:
        return probability.logprob
    if probability.prob is not None and probability.prob < 0:
        raise ServerError(f"a token has the probability {probability.prob:g}")
    return math.log(probability.prob) if probability.prob else -math.inf


def _metrics(answer: Answer) -> Metrics | None:
    timings = answer.timings
    if timings is None:
        return None
    drafted, accepted = timings.draft_n, timings.draft_n_accepted
    return Metrics(
        tokens=len(answer.tokens),
        drafted=drafted,
        accepted=accepted,
        acceptance_rate=accepted / drafted if drafted else 0.0,
        seconds=(timings.prompt_ms + timings.predicted_ms) / 1000,
    )


API = LlamaCpp
