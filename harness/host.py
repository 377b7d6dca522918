"""``python -m harness.host package.module:factory``: a Python decoder as a child on stdio.

For libraries that need an environment of their own: this needs Python, msgspec and nothing else of
the harness's. The factory gets a ``PairFiles`` in place of a ``ModelPair``.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import IO, cast

import msgspec

from harness import protocol
from harness.contract import ClosingDecoder, Decoder, StreamingDecoder
from harness.pair_files import PairFiles, UnsupportedPairError
from harness.protocol import FromChild, ToChild

Build = Callable[..., Decoder]  # of a ``PairFiles`` and options


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the lines of stdin until it ends."""
    names = list(sys.argv[1:] if arguments is None else arguments)
    if len(names) != 1 or ":" not in names[0]:
        print("error: give one package.module:factory", file=sys.stderr)
        return 2
    sys.path.insert(0, os.getcwd())
    serve(named(names[0]), *pipes())
    return 0


def pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes of the protocol, which are nobody else's from here on.

    Whatever the library prints goes to stderr, and what it starts reads nothing: by descriptor, for
    what is not Python.
    """
    lines, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return lines, answers


def named(name: str) -> Build:
    """The factory ``package.module:function``, imported when it is first called."""

    def build(files: PairFiles, **options: bool | int | float | str) -> Decoder:
        decoder: Decoder = pkgutil.resolve_name(name)(files, **options)
        return decoder

    return build


def serve(build: Build, lines: IO[bytes], answers: IO[bytes]) -> None:
    """Build the decoder when asked to, and answer line by line."""
    host = _Host(build)
    for line in lines:
        message = msgspec.json.decode(line, type=ToChild)
        if isinstance(message, protocol.Stop):
            break
        try:
            answer = msgspec.json.encode(host.answer(message))
        except Exception as error:  # a stranger's decoder may raise anything
            answer = msgspec.json.encode(_error(message.id, error))
        answers.write(answer + b"\n")
        answers.flush()
    host.close()


def _error(number: int, error: Exception) -> protocol.Error:
    words = str(error)
    if type(error) not in (ValueError, UnsupportedPairError):
        traceback.print_exception(error)  # to stderr, for whoever looks there
        words = f"{type(error).__name__}: {words}"
    if isinstance(error, UnsupportedPairError):
        return protocol.Error(id=number, message=words, reason="unsupported")
    if isinstance(error, ValueError):
        return protocol.Error(id=number, message=words, reason="invalid")
    return protocol.Error(id=number, message=words)


class _Host:
    """The decoder, and the stream that is open."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._decoder: Decoder | None = None
        self._pieces: Iterator[list[int]] = iter(())

    def answer(self, message: ToChild) -> FromChild:
        """The reply to one message."""
        if isinstance(message, protocol.Start):
            self._decoder = self._build(message.pair, **message.options)
            return protocol.Ready(
                id=message.id,
                protocol=protocol.VERSION,
                capabilities=sorted(self._decoder.capabilities),
                versions=getattr(self._decoder, "versions", {}),
            )
        if self._decoder is None:
            raise ValueError("the first message must be start")
        if isinstance(message, protocol.Generate):
            completions = [
                protocol.finite_answer(completion)
                for completion in self._decoder.generate(message.requests)
            ]
            return protocol.Completions(id=message.id, completions=completions)
        if isinstance(message, protocol.Stream):
            self._pieces = iter(cast(StreamingDecoder, self._decoder).stream(message.request))
        elif isinstance(message, protocol.Cancel):
            if hasattr(self._pieces, "close"):
                self._pieces.close()
            self._pieces = iter(())
        piece = next(self._pieces, None)
        return protocol.Piece(id=message.id, tokens=piece or [], done=piece is None)

    def close(self) -> None:
        """Let the decoder let go of what it holds."""
        if isinstance(self._decoder, ClosingDecoder):
            self._decoder.close()


if __name__ == "__main__":
    sys.exit(main())
