"""A decoder in a child process that speaks the protocol of ``harness.protocol`` on stdio."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TypeVar

import msgspec

from harness import protocol
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.pair_files import PairFiles, parse_forms
from harness.protocol import FromChild, ToChild

Reply = TypeVar("Reply", bound=FromChild)
SHOWN = 400  # characters of what a child printed


class ChildError(RuntimeError):
    """The child died, was silent for too long, or said something that is not the protocol."""


class StdioDecoder:
    """A decoder whose answers come from a child process.

    A child that fails in any way is stopped, and the next request starts a new one.

    Parameters
    ----------
    command : sequence of str
    files : PairFiles
    options : mapping
        Handed to the child.
    timeout : float
        Seconds that one answer may take; the first one too, for which models are loaded.
    environment : mapping, optional
        Variables in place of this process's own.

    Attributes
    ----------
    capabilities : frozenset of str
    versions : dict of str to str
        Both as the child says.
    """

    def __init__(
        self,
        command: Sequence[str],
        files: PairFiles,
        options: Mapping[str, bool | int | float | str],
        timeout: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._timeout = list(command), timeout
        self._environment = environment
        self._start = protocol.Start(id=0, pair=files, options=dict(options))
        self._ids = itertools.count(1)
        self._child: _Child | None = None
        try:
            ready = self._ready()
        except ChildError as error:
            raise ValueError(str(error)) from None
        self.capabilities = frozenset(ready.capabilities)
        self.versions = ready.versions

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Let the child decode all requests."""
        asked = [protocol.finite(request) for request in requests]
        message = protocol.Generate(id=next(self._ids), requests=asked)
        return self._ask(message, protocol.Completions).completions

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Let the child decode one request in pieces."""
        message = protocol.Stream(id=next(self._ids), request=protocol.finite(request))
        piece = self._ask(message, protocol.Piece)
        try:
            while True:
                if piece.tokens:
                    yield piece.tokens
                if piece.done:
                    return
                piece = self._ask(protocol.Next(id=next(self._ids)), protocol.Piece)
        finally:
            if not piece.done and self._child:
                self._ask(protocol.Cancel(id=next(self._ids)), protocol.Piece)

    def close(self) -> None:
        """Stop the child."""
        if self._child:
            self._child.stop(protocol.Stop(id=next(self._ids)))
            self._child = None

    def _ready(self) -> protocol.Ready:
        self._child = _Child(self._command, self._environment)
        ready = self._exchange(self._start, protocol.Ready)
        if ready.protocol != protocol.VERSION:
            self.close()
            raise ChildError(
                f"the child speaks protocol {ready.protocol}, this is {protocol.VERSION}"
            )
        return ready

    def _ask(self, message: ToChild, kind: type[Reply]) -> Reply:
        if self._child is None:
            self._ready()
        return self._exchange(message, kind)

    def _exchange(self, message: ToChild, kind: type[Reply]) -> Reply:
        """One line there, one line back."""
        assert self._child is not None
        try:
            reply = self._child.exchange(message, self._timeout)
            if reply.id != message.id:
                raise ChildError(f"the child answered message {reply.id}, not {message.id}")
            if not isinstance(reply, kind | protocol.Error):
                raise ChildError(f"the child answered with {type(reply).__name__.lower()}")
        except BaseException:  # also where the user interrupts: the answer would come to the next
            self._child.kill()
            self._child = None
            raise
        if isinstance(reply, kind):
            return reply
        assert isinstance(reply, protocol.Error)
        error = ValueError if reply.reason == "invalid" else ChildError
        raise error(reply.message)


class _Child:
    """One process, in a group of its own so that nothing it started outlives it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ChildError(f"cannot start {shlex.join(command)}: {error.strerror}") from None
        # Also at the end of the interpreter.
        self._finalizer = weakref.finalize(self, _kill, self._process)

    def exchange(self, message: ToChild, timeout: float) -> FromChild:
        """Write a line, read a line."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        silent = threading.Event()

        def expire() -> None:
            silent.set()
            self.kill()

        # A killed child ends every wait for it, that of a full pipe too.
        watchdog = threading.Timer(timeout, expire)
        watchdog.start()
        try:
            stdin.write(msgspec.json.encode(message) + b"\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = b""
        finally:
            watchdog.cancel()
        if silent.is_set():
            raise ChildError(f"no answer within {timeout:g} s{self._last_words()}")
        if not line.endswith(b"\n"):
            code = self._process.wait(timeout=10) if not line else None
            ended = f"exited with status {code}" if code is not None else "broke off in a line"
            raise ChildError(f"the child {ended}{self._last_words()}")
        try:
            return msgspec.json.decode(line, type=FromChild)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            shown = line[:SHOWN].decode(errors="replace").strip()
            raise ChildError(
                f"stdout is for the protocol alone, but the child wrote {shown!r} ({error})"
            ) from None

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - SHOWN))
        words = " ".join(self._errors.read().decode(errors="replace").split())
        return f"; its stderr ends: {words}" if words else ""

    def stop(self, message: protocol.Stop, patience: float = 5) -> None:
        """Ask it to exit, then make it."""
        stdin = self._process.stdin
        assert stdin
        try:
            stdin.write(msgspec.json.encode(message) + b"\n")
            stdin.close()
            self._process.wait(patience)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End it and all that it started."""
        self._finalizer()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe
        with contextlib.suppress(OSError):  # what was left in the buffer has no reader
            pipe.close()


def child(
    pair: ModelPair,
    command: str,
    forms: str = "hf",
    timeout: float = 300,
    **options: bool | int | float | str,
) -> StdioDecoder:
    """A decoder in any language, as a child process that speaks JSON lines."""
    words = shlex.split(command)
    if not words:
        raise ValueError('the command is empty: give "cmd: ./my_decoder --flag"')
    return StdioDecoder(words, pair.files(parse_forms(forms)), options, timeout)
