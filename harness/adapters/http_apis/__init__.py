"""What the contract says, in the words of each server's API.

An API is told the server and the pair, asks the server what it is, and says what it can. Field
names are those of the engines' documentation and of their servers' source; each module says which.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar

import msgspec

from harness.adapters.http_client import Server, ServerError
from harness.contract import Completion, Request
from harness.models import ModelPair

APIS: Mapping[str, str] = {
    "openai": "openai",
    "llama.cpp": "llama_cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
}


class OwnEosError(ServerError):
    """The server ended an output at an EOS of its model that the request does not name."""

    def __init__(self, server: Server, request: Request, tokens: list[int], why: str) -> None:
        super().__init__(
            f"{server.url}: an output of {len(tokens)} tokens ends ({why}) with {tokens[-1:]}, "
            f"but the request's EOS ids are {list(request.eos)}: this API cannot go on after an "
            "EOS of the model's own"
        )
        self.tokens = tokens


class Api(ABC):
    """One server, by its own API.

    Parameters
    ----------
    server : Server
    pair : ModelPair
        That the server should have loaded.
    model : str
        How the server calls it; found out, if empty.
    fields : mapping
        Added to the body of every request.

    Attributes
    ----------
    capabilities : frozenset of str
        Without ``plain``, ``batch`` and ``stream``, which are the decoder's to say.
    doubtful : frozenset of str
        Those that a server may refuse, of which it is asked when the decoder is built.
    versions : dict of str to str
    together : int
        Requests that the server decodes at a time, as far as it says.
    """

    path: ClassVar[str]
    answer: ClassVar[type[Any]]
    event: ClassVar[type[Any]]
    streams: ClassVar[bool] = True

    capabilities: frozenset[str]
    doubtful: frozenset[str] = frozenset()
    versions: dict[str, str]
    together: int = 8

    def __init__(
        self, server: Server, pair: ModelPair, model: str, fields: Mapping[str, Any]
    ) -> None:
        self.server, self.pair, self.model, self._fields = server, pair, model, dict(fields)

    def generate(self, request: Request) -> Completion:
        """Decode one request."""
        body = self.body(request) | self._fields
        return self.completion(request, self.server.ask(self.path, body, self.answer))

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request in pieces; closing it closes the connection."""
        with closing(self.pieces(request)) as pieces:
            yield from (tokens for tokens, _ in pieces if tokens)

    def pieces(self, request: Request) -> Generator[tuple[list[int], Any], None, None]:
        """New ids and whole events of a request's stream, up to the one that says why it ends."""
        body = self.body(request) | {"stream": True} | self._fields
        seen: list[int] = []
        with closing(self.server.events(self.path, body, self.event)) as events:
            for event in events:
                tokens, done = self.piece(request, event, seen)
                seen += tokens
                yield tokens, event
                if done:
                    return
        raise ServerError(f"{self.server.url}: the stream broke off after {len(seen)} tokens")

    @abstractmethod
    def body(self, request: Request) -> dict[str, Any]:
        """The JSON of a request."""

    @abstractmethod
    def completion(self, request: Request, answer: Any) -> Completion:
        """What an answer says; ServerError where it says something else."""

    @abstractmethod
    def piece(self, request: Request, event: Any, seen: list[int]) -> tuple[list[int], bool]:
        """New ids of an event after those ``seen``, and whether it is the last."""


def api_named(name: str) -> type[Api]:
    """The API of that name; ValueError if there is none."""
    if name not in APIS:
        raise ValueError(f"unknown api {name!r}: known are {', '.join(APIS)}")
    module = importlib.import_module(f"{__name__}.{APIS[name]}")
    found: type[Api] = module.API
    return found


def seed_of(request: Request, largest: int) -> int | None:
    """The request's seed, brought into 0..largest."""
    return None if request.seed is None else request.seed % (largest + 1)


class Model(msgspec.Struct):
    """An entry of ``/v1/models``."""

    id: str
    max_model_len: int | None = None
    meta: dict[str, Any] | None = None


class Models(msgspec.Struct):
    """``/v1/models``, which all of them have from OpenAI."""

    data: list[Model]


def served_model(server: Server, wanted: str) -> Model:
    """The model of that name, or the only one; ValueError names those there are."""
    models = server.ask("/v1/models", None, Models).data
    found = [model for model in models if wanted in ("", model.id)]
    if len(found) != 1:
        names = ", ".join(model.id for model in models) or "none"
        raise ValueError(f"{server.url} serves the models {names}: say which, by model=NAME")
    return found[0]
