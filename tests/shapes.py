"""Servers with the shapes of real ones, behind which a decoder of this project decodes.

Paths, fields and their oddities are those of the engines; what they compute is not.
``python tests/shapes.py --api llama.cpp --decoder reference`` serves every tiny pair, at
``http://127.0.0.1:PORT/{pair}``.
"""

from __future__ import annotations

import argparse
import functools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any, cast

import msgspec
from shape_apis import SHAPES as SHAPES
from shape_apis import Json as Json

from harness.adapters import load_decoder
from harness.contract import Completion, Decoder, Request, StreamingDecoder
from harness.models import TINY_PAIRS, ModelPair, load_pair

K = 4  # of all of them: it is fixed when a server starts


def pieces_of(decoder: Decoder, request: Request) -> Iterator[Completion]:
    """A stream; in one piece where it has to have log probabilities."""
    if request.logprobs:
        yield from decoder.generate([request])
    else:
        for tokens in cast(StreamingDecoder, decoder).stream(request):
            yield Completion(tokens=tokens, finish_reason="length")


class Together:
    """A decoder that decodes together what is asked meanwhile: whoever comes to it decodes for all.

    Parameters
    ----------
    decoder : Decoder
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.lock = decoder, threading.Lock()
        self._waiting: SimpleQueue[tuple[Request, Future[Completion]]] = SimpleQueue()

    def generate(self, request: Request) -> Completion:
        answer: Future[Completion] = Future()
        self._waiting.put((request, answer))
        with self.lock:
            if not answer.done():
                self._decode([self._waiting.get() for _ in range(self._waiting.qsize())])
        return answer.result()

    def _decode(self, waiting: list[tuple[Request, Future[Completion]]]) -> None:
        try:
            found = self.decoder.generate([request for request, _ in waiting])
        except Exception as error:  # any decoder may be behind it
            if len(waiting) > 1:
                for one in waiting:
                    self._decode([one])
            else:
                waiting[0][1].set_exception(error)
            return
        for (_, answer), completion in zip(waiting, found, strict=True):
            answer.set_result(completion)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: ShapeServer

    def log_message(self, *_: Any) -> None:
        """Nothing: tests are quiet."""

    def do_GET(self) -> None:
        self._take({})

    def do_POST(self) -> None:
        self._take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _take(self, body: Json) -> None:
        shape = self.server.shape
        head, _, rest = self.path.removeprefix("/").partition("/")
        name, path = (head, f"/{rest}") if head in TINY_PAIRS else (self.server.pair, self.path)
        together, pair = self.server.decoder(name)
        if path != shape.path:
            facts = shape.facts(path, pair, body)
            self.send(200 if facts else 404, facts or {"error": {"message": "no such path"}})
            return
        self.server.asked.append(body)
        if self.server.faults:
            self.server.faults.popleft()(self)
            return
        if refused := {name for name in self.server.refuses if body.get(name)}:
            self.send(400, {"error": {"message": f"{sorted(refused)} with speculation"}})
            return
        if shape.known and (unknown := body.keys() - shape.known):
            self.send(400, {"message": f"extra fields: {sorted(unknown)}", "code": 400})
            return
        plain = {} if self.server.speculate else {"speculate": False}
        request = msgspec.structs.replace(shape.request(body), draft_tokens=K, **plain)
        try:
            if body.get("stream"):
                with together.lock:
                    pieces = pieces_of(together.decoder, request)
                    self.stream(shape.events(body, request, pieces))
            else:
                self.send(200, shape.answer(body, request, together.generate(request)))
        except ValueError as error:
            self.send(400, {"error": {"code": 400, "message": str(error)}})
        except Exception as error:  # any decoder may be behind it
            self.send(500, {"error": {"message": f"{type(error).__name__}: {error}"}})

    def send(self, status: int, body: Json | bytes, **headers: str) -> None:
        """A whole answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def stream(self, events: Iterator[Json | str]) -> None:
        """Server-sent events; a client that went away ends them."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                data = event if isinstance(event, str) else json.dumps(event)
                self.chunk(f"data: {data}\n\n".encode())
            self.chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            self.server.cancelled.set()
            self.close_connection = True

    def chunk(self, content: bytes) -> None:
        """A part of a body; the empty one is its end."""
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()


class ShapeServer(ThreadingHTTPServer):
    """A server of a shape on a port of this machine, in a thread; a free one, if none is given.

    Parameters
    ----------
    api : str
    decoder : str
        Name of what decodes behind it.
    pair : str
        Of paths that do not begin with a pair's name.
    speculate : bool

    Attributes
    ----------
    faults : deque
        What happens to the next generations in place of an answer.
    asked : list
        Bodies of generations.
    refuses : set
        Fields that it takes only with a value that means nothing.
    cancelled : Event
        Set when a client closes a stream.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        api: str,
        decoder: str = "reference",
        pair: str = "tiny",
        speculate: bool = True,
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.shape, self.pair, self.speculate = SHAPES[api], pair, speculate
        self._name = decoder
        self.faults: deque[Callable[[Handler], None]] = deque()
        self.asked: list[Json] = []
        self.refuses: set[str] = set()
        self.cancelled = threading.Event()
        self.decoder = functools.cache(self._decoder)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """Nothing: a client went away."""

    def _decoder(self, pair: str) -> tuple[Together, ModelPair]:
        found = load_pair(pair)
        return Together(load_decoder(self._name, found)), found

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a decoder in the shape of an engine.")
    parser.add_argument("--api", choices=SHAPES, default="llama.cpp")
    parser.add_argument("--decoder", default="reference")
    parser.add_argument("--plain", action="store_true", help="without speculation")
    arguments = parser.parse_args()
    with ShapeServer(arguments.api, arguments.decoder, speculate=not arguments.plain) as server:
        print(f"{server.url}/{{pair}}", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
