"""Servers with the shapes of real ones, behind which a decoder of this project decodes.

Paths, fields and their oddities are those of the engines; what they compute is not.
``python tests/shapes.py --api llama.cpp --decoder reference`` serves every tiny pair, at
``http://127.0.0.1:PORT/{pair}``.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any, ClassVar, cast

import msgspec

from harness.adapters import load_decoder
from harness.contract import Completion, Decoder, Request, Sampling, StreamingDecoder
from harness.models import TINY_PAIRS, ModelPair, load_pair

K = 4  # of all of them: it is fixed when a server starts
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
    """A server of a shape on a free port of this machine, in a thread.

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
        self, api: str, decoder: str = "reference", pair: str = "tiny", speculate: bool = True
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
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
