"""A decoder in a child process that speaks the protocol of ``harness.protocol`` on stdio."""

from __future__ import annotations

import itertools
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from harness import protocol
from harness.adapters.child import Child, ChildError
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.pair_files import PairFiles, UnsupportedPairError, parse_forms
from harness.protocol import FromChild, ToChild

Reply = TypeVar("Reply", bound=FromChild)
_ERRORS: Mapping[str, type[Exception]] = {
    "invalid": ValueError,
    "unsupported": UnsupportedPairError,
    "failed": ChildError,
}
SHOWN = 200  # characters of a line that is not an answer


class StdioDecoder:
    """A decoder whose answers come from a child process.

    A child that fails in any way is ended, and the next request starts a new one.

    Parameters
    ----------
    command : sequence of str
    files : PairFiles
    options : mapping
        Handed to the child.
    timeout : float
        Seconds that one answer may take, or a whole stream; the first answer too, for which models
        are loaded.
    environment : mapping, optional
        Variables in place of this process's own.
    starting : float, optional
        Seconds in which a child must be ready, if that is not ``timeout``.
    memory : int, optional
        Bytes that a child and what it started may hold.

    Attributes
    ----------
    capabilities : frozenset of str
    versions : dict of str to str
        Both as the child says.
    timeout : float

    Raises
    ------
    ValueError
        If the child does not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        files: PairFiles,
        options: Mapping[str, bool | int | float | str],
        timeout: float,
        environment: Mapping[str, str] | None = None,
        starting: float | None = None,
        memory: int | None = None,
    ) -> None:
        self.timeout = timeout
        self._starting, self._memory = starting, memory
        self._command, self._environment = list(command), environment
        self._start = protocol.Start(id=0, pair=files, options=dict(options))
        self._ids = itertools.count(1)
        self._child: Child | None = None
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
        message: ToChild = protocol.Stream(id=next(self._ids), request=protocol.finite(request))
        if self._child is None:
            self._ready()
        left, piece = self.timeout, protocol.Piece(id=0, tokens=[])
        try:
            while not piece.done:
                # The child's own time: what the caller does between two pieces is not counted.
                started = time.monotonic()
                piece = self._ask(message, protocol.Piece, left)
                left -= time.monotonic() - started
                if piece.tokens:
                    yield piece.tokens
                if left <= 0 and not piece.done:
                    self._drop()
                    raise ChildError(f"the child's stream had no end within {self.timeout:g} s")
                message = protocol.Next(id=next(self._ids))
        finally:
            if not piece.done and self._child:
                self._ask(protocol.Cancel(id=next(self._ids)), protocol.Piece)

    def close(self) -> None:
        """Stop the child."""
        if self._child:
            self._child.stop(_line(protocol.Stop(id=next(self._ids))))
            self._child = None

    def _ready(self) -> protocol.Ready:
        self._child = self._start_child()
        try:
            ready = self._exchange(self._start, protocol.Ready, self._starting)
            if ready.protocol != protocol.VERSION:
                raise ChildError(
                    f"the child speaks protocol {ready.protocol}, this is {protocol.VERSION}"
                )
        except BaseException:
            self.close()
            raise
        return ready

    def _drop(self) -> None:
        """End a child that is not to be asked again; the next request starts another one."""
        if self._child:
            self._child.kill()
            self._child = None

    def _start_child(self) -> Child:
        return Child(self._command, self._environment, self._memory)

    def _ask(self, message: ToChild, kind: type[Reply], within: float | None = None) -> Reply:
        if self._child is None:
            self._ready()
        return self._exchange(message, kind, within)

    def _exchange(self, message: ToChild, kind: type[Reply], within: float | None) -> Reply:
        """One line there, one line back, within so many seconds, or ``timeout``."""
        assert self._child is not None
        try:
            timeout = self.timeout if within is None else within
            reply = _reply(self._child.exchange(_line(message), timeout))
            if reply.id != message.id:
                raise ChildError(f"the child answered message {reply.id}, not {message.id}")
            if not isinstance(reply, kind | protocol.Error):
                raise ChildError(
                    f"the child answered {_name(message)} with {_name(reply)}, "
                    f"not with {kind.__name__.lower()}"
                )
        except BaseException:  # also where the user interrupts: the answer would come to the next
            self._drop()
            raise
        if isinstance(reply, kind):
            return reply
        assert isinstance(reply, protocol.Error)
        raise _ERRORS[reply.reason](reply.message)


def _line(message: ToChild) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _name(message: ToChild | FromChild) -> str:
    return type(message).__name__.lower()


def _reply(line: bytes) -> FromChild:
    try:
        return msgspec.json.decode(line, type=FromChild)
    except msgspec.ValidationError as error:
        problem = f"the child's answer is not in the protocol ({error})"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"stdout is for the protocol alone, this is not JSON ({error})"
    shown = line if len(line) <= SHOWN else line[:SHOWN] + b"..."
    raise ChildError(f"{problem}: {shown.decode(errors='replace').strip()!r}")


def command(
    line: str,
    pair: ModelPair,
    /,
    forms: str = "hf",
    timeout: float = 300,
    **options: bool | int | float | str,
) -> StdioDecoder:
    """A decoder in any language, as a child process that speaks JSON lines.

    Parameters
    ----------
    line : str
        The command, as a shell would split it.
    pair : ModelPair
    forms : str
        In which the child wants its models: ``hf``, ``gguf``, or both with a comma.
    timeout : float
        Seconds that one answer may take.
    **options
        Handed to the child.
    """
    if not (isinstance(timeout, int | float) and timeout > 0):
        raise ValueError(f"timeout is {timeout}: give seconds, above 0")
    files = pair.files(parse_forms(str(forms)))
    return StdioDecoder(words(line), files, options, timeout)


def words(line: str) -> list[str]:
    """The words of a command; ValueError if there is none, or no such program."""
    try:
        found = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"the command {line!r} cannot be split into words: {error}") from None
    if not found:
        raise ValueError('the command is empty: give "cmd: ./my_decoder --flag"')
    if shutil.which(found[0]) is None:
        raise ValueError(f"no program {found[0]!r} that can be run: the command is {line!r}")
    return found
