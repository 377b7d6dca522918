"""Answers of a server, as the HTTP door reads them, API by API."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
from hypothesis import strategies as st

from harness.adapters.http import HttpDecoder
from harness.adapters.http_apis import api_named
from harness.adapters.http_client import Server, ServerError
from harness.adapters.http_fleet import Fleet
from harness.fuzz.mutations import nearly
from harness.fuzz.target import VOCABULARY, Target, ask
from harness.models import load_pair

URL = "http://127.0.0.1:1"
HEADERS = ("", "0", "-1", "²", "9" * 400, "Fri, 31 Dec 9999 23:59:59 -0000", "Mon, 1 Jan 1")
STATUSES = (200, 200, 200, 200, 204, 304, 400, 404, 422, 500)

GOOD: dict[str, list[Any]] = {
    "openai": [
        {"choices": [{"finish_reason": "length", "text": "a", "logprobs": {"tokens": ["<1>"]}}]},
        {
            "choices": [
                {"finish_reason": "stop", "logprobs": {"content": [{"token": "token_id:7"}]}}
            ]
        },
        {
            "choices": [
                {"finish_reason": "stop", "logprobs": {"content": [{"id": 7, "logprob": -1}]}}
            ]
        },
    ],
    "llama.cpp": [
        {
            "tokens": [1, 2, 7],
            "stop": True,
            "stop_type": "eos",
            "timings": {"prompt_ms": 1, "predicted_ms": 2, "draft_n": 2, "draft_n_accepted": 1},
            "completion_probabilities": [{"prob": 0.5}, {"logprob": -1.0}, {"prob": 0}],
        }
    ],
    "sglang": [
        {
            "output_ids": [1, 2, 7],
            "meta_info": {
                "completion_tokens": 3,
                "finish_reason": {"type": "stop", "matched": 7},
                "output_token_logprobs": [[-0.5, 1, None], [None, 2, None], [-1, 7, "a"]],
            },
        }
    ],
    "": [
        {
            "choices": [
                {
                    "finish_reason": "length",
                    "token_ids": [1, 2, 3],
                    "logprobs": {"token_logprobs": [-0.5, None, -1]},
                }
            ]
        }
    ],
}
ABOUT: list[Any] = [  # what a server says of itself
    {"data": [{"id": "m", "meta": {"n_vocab": VOCABULARY}, "max_model_len": 128}]},
    {"build_info": "b1", "total_slots": 2, "version": "1.0", "content": "<1>"},
]
FAILED: list[Any] = [{"error": {"message": "out of memory"}}, {"detail": [{"msg": "no"}]}]


def answers(name: str) -> Target:
    good = GOOD.get(name, GOOD[""])
    body = nearly([*good, *ABOUT, *FAILED])
    examples = st.tuples(
        st.sampled_from(["generate", "stream", "connect"]),
        st.sampled_from(STATUSES),
        st.sampled_from(HEADERS),
        st.lists(body, min_size=1, max_size=3),
    )
    said: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not said:
            return httpx2.Response(200, content=_about(request))
        status, header, content = said
        return httpx2.Response(status, headers=[(b"Retry-After", header)], content=content)

    server = Server(URL, timeout=1)
    server._client = httpx2.Client(transport=httpx2.MockTransport(answer))
    pair = load_pair(vocab_size=VOCABULARY)
    api = api_named(name)(server, pair, "", {})
    decoder = HttpDecoder(Fleet([api], 1, 0, {}), None, api.capabilities | {"stream"})

    def read(example: tuple[str, int, str, list[bytes]]) -> None:
        way, status, header, bodies = example
        events = b"".join(b"data: " + body + b"\n\n" for body in bodies) + b"data: [DONE]\n"
        said[:] = [status, header.encode(), events if way == "stream" else bodies[0]]
        try:
            if way == "connect":
                _connect(name, server)
            else:
                ask(decoder, way == "stream", (ServerError, *_senseless(status)))
        finally:
            said.clear()

    return Target(f"http: answers, api={name}", examples, read)


def _senseless(status: int) -> tuple[type[Exception], ...]:
    """ValueError means that the server refuses a request: only these statuses say so."""
    return (ValueError,) if status in (400, 413, 422) else ()


def _connect(name: str, server: Server) -> None:
    try:
        api_named(name)(server, load_pair(vocab_size=VOCABULARY), "", {})
    except (ServerError, ValueError):
        return


def _about(request: httpx2.Request) -> bytes:
    """What a server says of itself, and the texts of ids."""
    if request.url.path == "/detokenize":
        [token] = msgspec.json.decode(request.content)["tokens"]
        return msgspec.json.encode({"content": f"<{token}>"})
    return msgspec.json.encode(ABOUT[0] if request.url.path.endswith("/models") else ABOUT[1])
