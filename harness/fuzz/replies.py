"""Replies of a child, as the stdio door reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from harness import protocol
from harness.adapters.child import ChildError
from harness.adapters.stdio import StdioDecoder
from harness.contract import Completion, Round
from harness.fuzz.mutations import nearly
from harness.fuzz.target import VOCABULARY, Target, ask
from harness.pair_files import PairFiles, UnsupportedPairError


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


def replies() -> Target:
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
        ask(decoder, streams, (ChildError, ValueError, UnsupportedPairError))

    return Target("stdio: replies of a child", examples, read)
