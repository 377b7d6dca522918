"""A server behind a URL: one question, one answer, and every way in which that can fail."""

from __future__ import annotations

import email.utils
import ipaddress
import os
import random
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
import msgspec

Answer = TypeVar("Answer")
RETRIES = 5  # of a request that the server was too busy to take
FIRST_PAUSE = 0.5  # seconds, doubled from try to try, where the server does not say how long
LONGEST_PAUSE = 8.0
BUSY = (429, 503)
FAILED = (500, 502, 504)  # after the request was begun
SENSELESS = (400, 413, 422)
SHOWN = 200  # characters of an answer


class ServerError(RuntimeError):
    """No answer, or none that the API knows."""


class Unanswered(ServerError):
    """No answer came: ``begun`` says whether the server may have worked on the request."""

    begun = True


class Unreachable(Unanswered):
    """Nobody is there."""

    begun = False


class Busy(Unanswered):
    """The server turned the request away, as one too many, as often as it was asked."""

    begun = False


class Server:
    """One server.

    A request that was turned away as one too many (429, 503) is sent again, for it was not begun.
    Whether any other is, is for ``harness.adapters.http_fleet`` to say.

    Parameters
    ----------
    url : str
        What the paths of the API are appended to; OpenAI's clients count a ``/v1`` in.
    timeout : float
        Seconds that one request may take, pauses and retries included.
    token : str
        Sent as a bearer token, if not empty.

    Attributes
    ----------
    retries : int
        Requests that were sent again so far.
    """

    def __init__(self, url: str, timeout: float, token: str = "") -> None:
        self.url, self._timeout = url.rstrip("/").removesuffix("/v1"), timeout
        self.retries = 0
        self._lock = threading.Lock()
        # Of pauses: those of many requests that were turned away together must not be the same,
        # and those of a run must be, when it is repeated.
        self._jitter = random.Random(self.url)
        self._client = httpx2.Client(
            timeout=timeout,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            # A connection a request: one that died while it was idle cannot be mistaken for a
            # server that died of the request.
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=not _is_loopback(self.url),  # no proxy between this machine and itself
        )

    def ask(self, path: str, body: Any, kind: type[Answer]) -> Answer:
        """POST a body as JSON, or GET where it is None, and decode the answer."""
        deadline = time.monotonic() + self._timeout
        with self._open(path, body, deadline) as response:
            content = b"".join(self._until(deadline, response.iter_bytes()))
        return decode(content, kind, self._at(path))

    def events(self, path: str, body: Any, kind: type[Answer]) -> Generator[Answer, None, None]:
        """POST a body as JSON, and decode the server-sent events that come until ``[DONE]``.

        Closing the iterator closes the connection: that is how a request is cancelled.
        """
        deadline = time.monotonic() + self._timeout
        with self._open(path, body, deadline) as response:
            # Lines of parts that came in time, not lines that came in time: one may never end.
            for line in _lines(self._until(deadline, response.iter_bytes())):
                name, _, data = line.partition(b":")
                if data.strip() == b"[DONE]":
                    return
                if name == b"error":
                    raise ServerError(f"{self._at(path)}: {_message(data)}")
                if name == b"data":
                    yield decode(data.strip(), kind, self._at(path))

    def count_retry(self) -> None:
        """Note that a request is sent again, by whatever thread."""
        with self._lock:
            self.retries += 1

    def pause(self, attempt: int, said: float = 0.0) -> float:
        """Seconds until the next try: what the server says at the least, else more and more.

        Parameters
        ----------
        attempt : int
            Tries so far, less one.
        said : float
            Of the server's Retry-After; 0 where it has none.
        """
        with self._lock:
            jitter = self._jitter.random()
        if said:
            return said + jitter * min(FIRST_PAUSE, said)
        return min(LONGEST_PAUSE, float(FIRST_PAUSE * 2**attempt)) * (1 + jitter) / 2

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _at(self, path: str) -> str:
        return f"{self.url}{path}"

    @contextmanager
    def _open(self, path: str, body: Any, deadline: float) -> Iterator[httpx2.Response]:
        """The response to a request that the server has taken, its body not read yet."""
        where = self._at(path)
        content = None if body is None else msgspec.json.encode(body)
        with _named(where, self._timeout):
            for attempt in range(RETRIES + 1):
                left = max(0.01, deadline - time.monotonic())
                with (
                    _HeadersWithin(left) as watch,
                    self._client.stream(
                        "GET" if content is None else "POST",
                        where,
                        content=content,
                        headers={"Content-Type": "application/json"},
                        timeout=left,
                        extensions={"trace": watch.trace},
                    ) as response,
                ):
                    watch.cancel()
                    if response.status_code < 400:
                        yield response
                        return
                    words = b"".join(self._until(deadline, response.iter_bytes()))
                if response.status_code not in BUSY:
                    break
                pause = self.pause(attempt, _said(response))
                if attempt == RETRIES or pause > deadline - time.monotonic():
                    break
                self.count_retry()
                time.sleep(pause)
        problem = f"{where}: HTTP {response.status_code}: {_message(words)}"
        if response.status_code in SENSELESS:
            raise ValueError(problem)
        if response.status_code in BUSY:
            raise Busy(
                f"{problem} (asked {attempt + 1} times; the next try would be in {pause:.3g} s)"
            )
        if response.status_code in FAILED:
            raise Unanswered(problem)
        if response.status_code == 404:
            problem += " (does the server speak this API? see the option api=)"
        raise ServerError(problem)

    def _until(self, deadline: float, parts: Iterator[Answer]) -> Iterator[Answer]:
        """The same, but not for ever: a read has a timeout, many small ones have none together."""
        for part in parts:
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("the answer goes on for too long")
            yield part


class _HeadersWithin:
    """Breaks a connection whose headers do not end in time, however steadily they come."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._break)
        self._timer.daemon = True
        self._socket: socket.socket | None = None
        self._broken = False

    def __enter__(self) -> _HeadersWithin:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
        if self._broken:
            raise httpx2.ReadTimeout("the headers go on for too long")

    def trace(self, event: str, told: Mapping[str, Any]) -> None:
        """Hear of the connection, as soon as there is one."""
        if event == "connection.connect_tcp.complete":
            self._socket = told["return_value"].get_extra_info("socket")

    def cancel(self) -> None:
        """There is nothing to wait for any more."""
        self._timer.cancel()

    def _break(self) -> None:
        self._broken = True
        if self._socket is not None:
            with suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Lines, whatever parts they come in."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole


@contextmanager
def _named(where: str, timeout: float) -> Iterator[None]:
    """Say in one line what went wrong on the way, and where."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        words = str(error) or type(error).__name__
        raise Unreachable(f"cannot reach {where}: {words}: is the server up?") from error
    except httpx2.TimeoutException as error:
        raise Unanswered(f"{where}: no complete answer within {timeout:g} s") from error
    except httpx2.TransportError as error:
        words = str(error) or type(error).__name__
        raise Unanswered(
            f"{where}: the connection broke, the server may have died: {words}"
        ) from error
    except (httpx2.InvalidURL, httpx2.DecodingError) as error:
        raise ServerError(f"{where}: {error}") from error


def decode(content: bytes, kind: type[Answer], where: str) -> Answer:
    """JSON of a certain shape; ServerError says what is not."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = content[:SHOWN].decode(errors="replace")
        raise ServerError(
            f"{where}: the answer is not what this API sends: {error}; it begins {shown!r}"
        ) from None


def token_of(variable: str) -> str:
    """A secret from an environment variable: options are written into records, this is not."""
    if variable and variable not in os.environ:
        raise ValueError(f"token_from={variable}: there is no such environment variable")
    return os.environ.get(variable, "") if variable else ""


def _said(response: httpx2.Response) -> float:
    """Seconds that the server asks to wait, by number or by date; 0 where it does not say."""
    said = response.headers.get("Retry-After", "")
    if said.isascii() and said.strip().isdigit():
        return float(said)
    try:
        date = email.utils.parsedate_to_datetime(said)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):  # by what is wrong with the date
        return 0.0
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _message(content: bytes) -> str:
    """What the server says of an error: the message within its JSON, if it is any."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = content.decode(errors="replace")
    while isinstance(found, dict):
        found = next((found[key] for key in ("error", "message", "detail") if key in found), None)
    return " ".join(str(found).split())[:SHOWN]


def _is_loopback(url: str) -> bool:
    try:
        host = httpx2.URL(url).host
    except httpx2.InvalidURL as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
