"""``/v1/completions`` as engines extend it: ids in, ids out, ends by id.

Bodies have OpenAI's fields, and vLLM's names for what OpenAI lacks, which other engines took over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from harness.adapters.http_apis import Api, OwnEosError, served_model
from harness.adapters.http_client import Server, ServerError
from harness.contract import Completion, FinishReason, Request
from harness.models import ModelPair

LARGEST_BIAS = 100.0  # of OpenAI, for which it is a ban or an order


class Token(msgspec.Struct):
    """A token of the chat API's shape, which llama.cpp has here as well, with an id."""

    logprob: float | None = None
    token: str = ""
    id: int | None = None


class Logprobs(msgspec.Struct):
    """One entry a token: two lists, or one of pairs."""

    token_logprobs: list[float | None] | None = None
    tokens: list[str] | None = None
    content: list[Token] | None = None

    def values(self) -> list[float]:
        """Log probabilities; JSON has no infinity."""
        found = self.token_logprobs or [token.logprob for token in self.content or ()]
        return [-math.inf if value is None else value for value in found]


class Choice(msgspec.Struct):
    """The answer to a prompt, or what a stream adds to it."""

    finish_reason: str | None = None
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None


class Answer(msgspec.Struct):
    """A completion, or an event of a stream: one with usage alone has no choices."""

    choices: list[Choice]


class Version(msgspec.Struct):
    """GET /version."""

    version: str


class CompletionsApi(Api):
    """What the engines have in common; each adds its own fields."""

    path = "/v1/completions"
    answer = event = Answer
    engine: ClassVar[str]  # as ``versions`` calls it

    def __init__(
        self, server: Server, pair: ModelPair, model: str, fields: Mapping[str, Any]
    ) -> None:
        super().__init__(server, pair, model, fields)
        self.model = served_model(server, model).id
        self.versions = self.said_versions()

    def body(self, request: Request) -> dict[str, Any]:
        """Every parameter is sent: servers take what is missing from the model's own defaults."""
        s = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_new_tokens,
            "temperature": s.temperature,
            "top_p": 1.0 if s.greedy else s.top_p,
            "presence_penalty": s.presence_penalty,
            "frequency_penalty": s.frequency_penalty,
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if s.logit_bias:
            body["logit_bias"] = {
                str(token): bias if math.isfinite(bias) else -LARGEST_BIAS
                for token, bias in s.logit_bias.items()
            }
        return body

    def completion(self, request: Request, answer: Answer) -> Completion:
        """The only choice of an answer."""
        choice = self._choice(answer)
        tokens = self.ids(choice)
        return Completion(
            tokens=tokens,
            finish_reason=self._reason(request, choice, tokens),
            logprobs=choice.logprobs.values() if request.logprobs and choice.logprobs else None,
        )

    def piece(self, request: Request, event: Answer, seen: list[int]) -> tuple[list[int], bool]:
        """The ids of one event."""
        if not event.choices:
            return [], False
        choice = self._choice(event)
        done = choice.finish_reason is not None
        tokens = self.ids(choice)
        if done:
            self._reason(request, choice, seen + tokens)
        return tokens, done

    def ids(self, choice: Choice) -> list[int]:
        """The new ids of a choice."""
        if choice.token_ids is None:
            raise ServerError(f"{self.server.url}: the answer has no token_ids: an older server?")
        return choice.token_ids

    def _choice(self, answer: Answer) -> Choice:
        if len(answer.choices) != 1:
            raise ServerError(
                f"{self.server.url}: {len(answer.choices)} choices for one prompt, not 1"
            )
        return answer.choices[0]

    def _reason(self, request: Request, choice: Choice, tokens: list[int]) -> FinishReason:
        if choice.finish_reason == "length":
            return "length"
        if choice.finish_reason == "stop" and tokens and tokens[-1] in request.eos:
            return "eos"
        if choice.finish_reason == "stop":
            raise OwnEosError(self.server, request, tokens, "stop")
        raise ServerError(f"{self.server.url}: an output ends by {choice.finish_reason!r}")

    def said_versions(self) -> dict[str, str]:
        """The engine's version by /version, if there is such a path."""
        try:
            return {self.engine: self.server.ask("/version", None, Version).version}
        except ServerError:
            return {self.engine: "unknown"}
