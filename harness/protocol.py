"""The stdio door: the contract as JSON lines, for a decoder in any language.

Every line to the child is answered by exactly one line, in order, with the same ``id``:

    start     -> ready         models and options; the child says what it can
    generate  -> completions   as many as there were requests, in their order
    stream    -> piece         the first new ids of one request
    next      -> piece         the next ones; ``done`` with the last
    cancel    -> piece         gives the stream up; empty and ``done``
    stop      -> nothing       the child exits

Any may be answered by ``error`` instead. stdout is for the protocol alone; stderr is free, and its
last lines are shown where the child fails. JSON has no infinity: a bias that bans a token, and the
log probability of an impossible one, are sent as -1e30.

The page for users is docs/stdio.md; ``python -m harness.protocol`` prints docs/stdio.schema.json.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from harness.contract import Completion, Request
from harness.pair_files import PairFiles

VERSION = 1
BANNED = -1e30


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field="type"):
    """The first line; ``protocol`` is the version that the harness speaks."""

    id: int
    protocol: int = VERSION
    pair: PairFiles
    options: dict[str, bool | int | float | str] = {}


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate", tag_field="type"):
    """Decode all requests, together if the decoder can."""

    id: int
    requests: list[Request]


class Stream(msgspec.Struct, frozen=True, kw_only=True, tag="stream", tag_field="type"):
    """Decode one request in pieces; asked only of a child that declares ``stream``."""

    id: int
    request: Request


class Next(msgspec.Struct, frozen=True, kw_only=True, tag="next", tag_field="type"):
    """The next piece of the stream."""

    id: int


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel", tag_field="type"):
    """Nobody wants the rest of the stream."""

    id: int


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="type"):
    """Exit; so does a closed stdin."""

    id: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready", tag_field="type"):
    """What the child can, by the names of the contract, and the versions it is made of."""

    id: int
    protocol: int
    capabilities: list[str]
    versions: dict[str, str] = {}


class Completions(msgspec.Struct, frozen=True, kw_only=True, tag="completions", tag_field="type"):
    """The answers, in the order of the requests."""

    id: int
    completions: list[Completion]


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece", tag_field="type"):
    """New ids of a stream, and whether they are its last."""

    id: int
    tokens: list[int]
    done: bool = False


class Error(msgspec.Struct, frozen=True, kw_only=True, tag="error", tag_field="type"):
    """No answer, in words, and what that says.

    ``invalid``: the request makes no sense. ``unsupported``, of start alone: the models are of a
    kind that the decoder does not take. ``failed``: something broke.
    """

    id: int
    message: str
    reason: Literal["invalid", "unsupported", "failed"] = "failed"


ToChild = Start | Generate | Stream | Next | Cancel | Stop
FromChild = Ready | Completions | Piece | Error


def finite(request: Request) -> Request:
    """The same request in numbers that JSON has."""
    bias = request.sampling.logit_bias
    if all(map(math.isfinite, bias.values())):
        return request
    finite = {token: max(BANNED, value) for token, value in bias.items()}
    sampling = msgspec.structs.replace(request.sampling, logit_bias=finite)
    return msgspec.structs.replace(request, sampling=sampling)


def finite_answer(completion: Completion) -> Completion:
    """The same completion in numbers that JSON has."""
    if not completion.logprobs or -math.inf not in completion.logprobs:
        return completion
    logprobs = [BANNED if value == -math.inf else value for value in completion.logprobs]
    return msgspec.structs.replace(completion, logprobs=logprobs)


def schema() -> dict[str, Any]:
    """JSON Schema of a line, in either direction."""
    (to_child, from_child), components = msgspec.json.schema_components(
        (ToChild, FromChild), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Speculative decoder on stdio, protocol version {VERSION}",
        "description": "One JSON object a line. toChild is what the harness writes to the "
        "decoder's stdin, fromChild what the decoder writes to its stdout.",
        "anyOf": [{"$ref": "#/$defs/toChild"}, {"$ref": "#/$defs/fromChild"}],
        "$defs": {"toChild": to_child, "fromChild": from_child, **components},
    }


if __name__ == "__main__":
    print(msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode())
