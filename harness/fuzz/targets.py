"""What reads bytes of strangers, each as a function of them, and the errors that may come of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from hypothesis import strategies as st

from harness import protocol, record
from harness.adapters.child import ChildError
from harness.adapters.http import HttpDecoder
from harness.adapters.http_apis import APIS, api_named
from harness.adapters.http_client import Server, ServerError
from harness.adapters.stdio import StdioDecoder
from harness.checks.subject import Refused, Subject
from harness.contract import Completion, Request, Round
from harness.fuzz.mutations import nearly
from harness.models import load_pair
from harness.pair_files import PairFiles, UnsupportedPairError
from harness.verdict import Status, Verdict

REQUEST = Request(prompt=(1, 2), max_new_tokens=3, eos=(7,), logprobs=True)
URL = "http://127.0.0.1:1"
VOCABULARY = 8
HEADERS = ("", "0", "-1", "²", "9" * 400, "Fri, 31 Dec 9999 23:59:59 -0000", "Mon, 1 Jan 1")
STATUSES = (200, 200, 200, 200, 204, 304, 400, 404, 422, 500)
Example = Any


@dataclass(frozen=True)
class Target:
    """Something that reads bytes.

    Attributes
    ----------
    name : str
    examples : strategy
    read : callable
        Reads one; what is documented for it, it keeps to itself.
    """

    name: str
    examples: st.SearchStrategy[Example]
    read: Callable[[Example], None]


def targets() -> list[Target]:
    """All of them."""
    return [_stdio(), *(_http(api) for api in APIS), _records()]


# The stdio door


class _Said:
    """In place of a child: it says what it was given, whatever it is asked."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = list(lines)

    def exchange(self, line: bytes, timeout: float) -> bytes:
        if not self._lines:
            raise ChildError("the child exited with status 0")
        return self._lines.pop(0).replace(b"\n", b" ")

    def stop(self, line: bytes) -> None:
        """Nothing is there to stop."""

    def kill(self) -> None:
        """Nor to kill."""


class _Decoder(StdioDecoder):
    """A ``StdioDecoder`` whose next child says these lines."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        super().__init__([], PairFiles(**_FILES), {}, timeout=1)

    def _start_child(self) -> Any:
        said, self._lines = self._lines, ()
        return _Said(said)


_FILES: dict[str, Any] = {
    "name": "weightless",
    "vocab_size": VOCABULARY,
    "context_length": 128,
    "eos": (),
    "target": {},
    "draft": {},
}


def _stdio() -> Target:
    ready = protocol.Ready(id=0, protocol=1, capabilities=["greedy", "stream"], versions={"a": "1"})
    answer = Completion(
        tokens=[1, 2, 7], finish_reason="eos", logprobs=[-0.5, -1.0, 0.0], rounds=[Round(2, 2)]
    )
    second: list[Any] = [
        protocol.Completions(id=1, completions=[answer]),
        protocol.Piece(id=1, tokens=[1, 2]),
        protocol.Error(id=1, message="no such id", reason="invalid"),
        protocol.Error(id=1, message="out of pages"),
    ]
    third = [protocol.Piece(id=n, tokens=[7], done=True) for n in (2, 3)]
    # Mostly a good beginning, so that something is read behind it.
    good = st.just(msgspec.json.encode(ready))
    examples = st.tuples(
        st.booleans(),
        st.one_of(good, good, good, nearly([msgspec.to_builtins(ready)])),
        nearly(msgspec.to_builtins(second)),
        nearly(msgspec.to_builtins(third)),
    )

    def read(example: tuple[bool, bytes, bytes, bytes]) -> None:
        streams, *lines = example
        try:
            decoder = _Decoder(lines)
        except (ValueError, UnsupportedPairError):
            return
        _ask(decoder, streams, (ChildError, ValueError, UnsupportedPairError))

    return Target("stdio: replies of a child", examples, read)


def _ask(decoder: Any, streams: bool, documented: tuple[type[Exception], ...]) -> None:
    """Ask as checks do: an answer in the contract's form, or a refusal for a documented reason."""
    subject = Subject(decoder, load_pair(vocab_size=VOCABULARY), "fuzz")
    try:
        if streams:
            subject.stream(REQUEST)
        else:
            subject.ask([REQUEST])
    except Refused as error:
        if (cause := error.__cause__) is not None and not isinstance(cause, documented):
            raise cause from None


# The HTTP doors

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


def _http(name: str) -> Target:
    answers = GOOD.get(name, GOOD[""])
    body = nearly([*answers, *ABOUT, *FAILED])
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
    decoder = HttpDecoder(api, None, 1, api.capabilities | {"stream"})

    def read(example: tuple[str, int, str, list[bytes]]) -> None:
        way, status, header, bodies = example
        events = b"".join(b"data: " + body + b"\n\n" for body in bodies) + b"data: [DONE]\n"
        said[:] = [status, header.encode(), events if way == "stream" else bodies[0]]
        try:
            if way == "connect":
                _connect(name, server)
            else:
                _ask(decoder, way == "stream", (ServerError, *_senseless(status)))
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


# Records


def _records() -> Target:
    header = record.Header(
        command="pytest",
        started=record.now(),
        seed=1,
        alpha=1e-4,
        decoders=["a"],
        pair=record.PairInfo("tiny", "", "", "cpu", "float32"),
        versions={"python": "3"},
        machine={"cores": "2"},
        options={"profile": "smoke"},
    )
    rows: list[Any] = [
        header,
        record.VerdictRow(
            decoder="a",
            item="suites/test_a.py::test_a",
            suite="a",
            seconds=1.0,
            verdict=Verdict(check="a.b", status=Status.FAIL, message="no", evidence={"a": [1]}),
        ),
        record.GenerationRow(
            decoder="a",
            task="chat",
            prompt_id="p",
            repeat=0,
            prompt_tokens=2,
            plain_tokens=[1, 2],
            plain_seconds=1.0,
            tokens=[1, 2],
            seconds=0.5,
            first="plain",
            drafted=[1],
            accepted=[1],
        ),
        record.Footer(finished=record.now(), rows=2),
    ]
    documents = [msgspec.to_builtins(row) for row in rows]
    good = [msgspec.json.encode(document) for document in documents]
    first = st.one_of(st.just(good[0]), st.just(good[0]), nearly(documents[:1]))
    examples = st.tuples(
        first, st.lists(st.one_of(st.sampled_from(good), nearly(documents)), max_size=3)
    )
    directory = tempfile.TemporaryDirectory()
    path = Path(directory.name) / "record.jsonl"

    def read(example: tuple[bytes, list[bytes]]) -> None:
        head, others = example
        path.write_bytes(b"\n".join([head, *others]))
        try:
            record.read(path)
        except record.RecordError:
            return
        finally:
            _ = directory  # it is there for as long as this function is

    return Target("records: lines of a file", examples, read)
