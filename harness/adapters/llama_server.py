"""llama.cpp's own server, started here: one without speculation, and one for each K.

llama-server fixes K and the kind of drafts when it starts. Requests go to it through the HTTP
door's ``llama.cpp`` API. ``ci/third_party --install llama-cpp`` compiles it.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.adapters import NotInstalledError
from harness.adapters.engines import environment
from harness.adapters.http import names
from harness.adapters.http_apis import Api, api_named
from harness.adapters.http_client import Server, ServerError
from harness.adapters.server_process import ServerProcess
from harness.contract import Completion, Request
from harness.models import ModelPair

ENVIRONMENT = "llama-cpp"
MOST = 8  # speculating servers that are kept running, one a K
FIRST_K = 4  # of the server that shows whether speculation starts at all
LISTENING = re.compile(r"listening on (http://\S+)")

# Float32 throughout, each slot with the whole context, nothing remembered from request to request.
SETTINGS = [
    *("--host", "127.0.0.1", "--port", "0", "--offline", "--no-ui", "--no-warmup", "-fit", "off"),
    *("--threads", "1", "--threads-batch", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32"),
    *("--no-kv-unified", "--no-context-shift", "--cache-ram", "0"),
]
# The last lines of the log are those of an assertion, not of a debugger that is called for it.
VARIABLES = {"GGML_NO_BACKTRACE": "1"}

Speculation = Callable[[int], Sequence[str]]


class LlamaServers:
    """One decoder of several servers.

    Parameters
    ----------
    pair : ModelPair
    speculation : callable
        K -> the server's arguments that switch speculation on.
    slots : int
        Requests that a server decodes together.
    timeout : float
        Seconds that one request may take.
    without : str
        Capabilities that are not declared, so that the others can be looked at: ``logprobs``.

    Attributes
    ----------
    capabilities : frozenset of str
    versions : dict of str to str
    """

    def __init__(
        self,
        pair: ModelPair,
        speculation: Speculation,
        slots: int = 4,
        timeout: float = 300,
        without: str = "",
    ) -> None:
        if slots < 1:
            raise ValueError(f"slots is {slots}: at least 1")
        self._pair, self._speculation = pair, speculation
        self._slots, self._timeout = slots, timeout
        self._command = [
            *(str(binary()), "-m", str(pair.file("target", "gguf"))),
            *(*SETTINGS, "-np", str(slots), "-c", str(slots * pair.context_length)),
        ]
        self._lock = threading.Lock()
        # By K, the least recently used first; 0 is plain decoding.
        self._running: OrderedDict[int, tuple[ServerProcess, Api]] = OrderedDict()
        try:
            _, api = self._arm(0)
            self._arm(FIRST_K)
        except BaseException:
            self.close()
            raise
        self.versions = api.versions
        together = {"batch"} if slots > 1 else set()
        declared = api.capabilities | {"plain", "stream"} | together
        self.capabilities = declared - names(without)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Let the servers decode all requests, one after the other, each as many as it has slots.

        One after the other, so that none is stopped for another one while it still works.
        """
        answers: dict[int, Completion] = {}
        for k in dict.fromkeys(map(_arm_of, requests)):
            places = [place for place, request in enumerate(requests) if _arm_of(request) == k]
            with ThreadPoolExecutor(self._slots) as pool:
                made = pool.map(self._generate, [requests[place] for place in places])
                answers.update(zip(places, made, strict=True))
        return [answers[place] for place in range(len(requests))]

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Let a server decode one request in pieces."""
        server, api = self._arm(_arm_of(request))
        try:
            yield from api.stream(request)
        except ServerError as error:
            raise self._with_end(server, error) from error

    def close(self) -> None:
        """Stop the servers."""
        with self._lock:
            while self._running:
                _stop(self._running.popitem()[1])

    def _generate(self, request: Request) -> Completion:
        server, api = self._arm(_arm_of(request))
        try:
            return api.generate(request)
        except ServerError as error:
            raise self._with_end(server, error) from error

    def _with_end(self, server: ServerProcess, error: ServerError) -> ServerError:
        """The error, and what became of the server if it is gone; the next request gets another."""
        if not (ended := server.ended()):
            return error
        with self._lock:
            for key, running in list(self._running.items()):
                if running[0] is server:
                    _stop(self._running.pop(key))
        return ServerError(f"{error}: {server.name} {ended}")

    def _arm(self, k: int) -> tuple[ServerProcess, Api]:
        """The server of this K, started if need be."""
        with self._lock:
            if k not in self._running:
                command = [*self._command, *(self._speculation(k) if k else ())]
                server = ServerProcess(command, LISTENING, VARIABLES)
                try:
                    door = Server(server.url, self._timeout)
                    api = api_named("llama.cpp")(door, self._pair, "", {})
                except BaseException:
                    server.stop()
                    raise
                self._running[k] = server, api
                if len(self._running) > MOST + 1:
                    oldest = next(key for key in self._running if key)
                    _stop(self._running.pop(oldest))
            self._running.move_to_end(k)
            return self._running[k]


def _arm_of(request: Request) -> int:
    """K, or 0 for plain decoding."""
    if request.draft_tokens < 1:
        raise ValueError(f"draft_tokens is {request.draft_tokens}: at least 1")
    return request.draft_tokens if request.speculate else 0


def _stop(running: tuple[ServerProcess, Api]) -> None:
    server, api = running
    api.server.close()
    server.stop()


def binary() -> Path:
    """Where llama-server is; NotInstalledError if it is not there."""
    path = environment(ENVIRONMENT) / "bin" / "llama-server"
    if not path.exists():
        raise NotInstalledError(
            f"{ENVIRONMENT} is not installed: ci/third_party --install {ENVIRONMENT}"
        )
    return path


def draft(
    pair: ModelPair,
    sampling: str = "greedy",
    slots: int = 4,
    timeout: float = 300,
    without: str = "",
) -> LlamaServers:
    """With the pair's draft, whose tokens are its argmax or drawn (``probabilistic``)."""
    return LlamaServers(pair, lambda k: _draft(pair, k, sampling), slots, timeout, without)


def synthetic(
    pair: ModelPair,
    rate: float = 0.7,
    slots: int = 4,
    timeout: float = 300,
    without: str = "",
) -> LlamaServers:
    """Wrong on purpose: accepts drafts by chance, whatever the target thinks of them."""
    return LlamaServers(
        pair,
        lambda k: [
            *_draft(pair, k, "greedy"),
            *("--spec-synth-rates", ",".join(f"{rate ** (i + 1):.4f}" for i in range(k))),
        ],
        slots,
        timeout,
        without,
    )


def _draft(pair: ModelPair, k: int, sampling: str) -> list[str]:
    return [
        *("--spec-type", "draft-simple", "-md", str(pair.file("draft", "gguf"))),
        *("--spec-draft-n-max", str(k), "--spec-draft-sampling", sampling),
        *("-ctkd", "f32", "-ctvd", "f32", "-td", "1", "-tbd", "1"),
    ]


def ngram(
    pair: ModelPair,
    kind: str = "simple",
    n: int = 2,
    slots: int = 4,
    timeout: float = 300,
    without: str = "",
) -> LlamaServers:
    """Without a draft: tokens that followed the last ``n`` before.

    Parameters
    ----------
    pair : ModelPair
    kind : str
        ``simple``, ``map-k``, ``map-k4v``, ``mod``, or ``cache``, which takes neither K nor ``n``.
    n : int
        Tokens that have to be the same.
    slots, timeout, without
        See ``LlamaServers``.
    """
    arguments: dict[str, Speculation] = {
        "cache": lambda k: (),
        "mod": lambda k: (
            *("--spec-ngram-mod-n-match", str(n)),
            *("--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(k)),
        ),
    }
    for name in ("simple", "map-k", "map-k4v"):
        arguments[name] = lambda k, name=name: (  # type: ignore[misc]
            *(f"--spec-ngram-{name}-size-n", str(n)),
            *(f"--spec-ngram-{name}-size-m", str(k)),
        )
    if kind not in arguments:
        raise ValueError(f"unknown kind {kind!r}: known are {', '.join(sorted(arguments))}")
    return LlamaServers(
        pair,
        lambda k: ["--spec-type", f"ngram-{kind}", *arguments[kind](k)],
        slots,
        timeout,
        without,
    )
