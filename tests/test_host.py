"""The host: a Python decoder behind the protocol, whatever it raises, prints or answers."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import host, protocol
from harness.contract import Request
from harness.pair_files import PairFiles
from harness.protocol import FromChild, ToChild

ROOT = Path(__file__).parent.parent
PAIR = PairFiles(name="p", vocab_size=8, context_length=16, eos=(), target={}, draft={})
START = protocol.Start(id=0, pair=PAIR)


def asked(first: int, number: int = 1, new: int = 3) -> protocol.Generate:
    return protocol.Generate(id=number, requests=[Request(prompt=(first,), max_new_tokens=new)])


def streamed(first: int, number: int = 1) -> protocol.Stream:
    return protocol.Stream(id=number, request=Request(prompt=(first,), max_new_tokens=4))


def session(*messages: ToChild, name: str = "hosted:troublesome") -> list[Any]:
    """The answers to some messages."""
    lines = b"".join(msgspec.json.encode(message) + b"\n" for message in messages)
    answers = io.BytesIO()
    host.serve(host.named(name), io.BytesIO(lines), answers)
    return [msgspec.json.decode(line, type=FromChild) for line in answers.getvalue().splitlines()]


def test_every_message_has_one_answer_with_its_id() -> None:
    ready, completions, piece, following, end = session(
        START, asked(0, 5), streamed(0, 6), protocol.Next(id=7), protocol.Cancel(id=8)
    )
    assert ready == protocol.Ready(
        id=0,
        protocol=protocol.VERSION,
        capabilities=["greedy", "logprobs", "stream"],
        versions={"troublesome": "1.0"},
    )
    assert (completions.id, completions.completions[0].tokens) == (5, [7, 7, 7])
    assert piece == protocol.Piece(id=6, tokens=[0])
    assert following == protocol.Piece(id=7, tokens=[1])
    assert end == protocol.Piece(id=8, tokens=[], done=True)


def test_a_stream_ends_and_stays_at_its_end() -> None:
    _, *pieces = session(START, streamed(0), *(protocol.Next(id=n) for n in range(2, 7)))
    assert [piece.tokens for piece in pieces] == [[0], [1], [2], [3], [], []]
    assert [piece.done for piece in pieces] == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("first", "reason", "words"),
    [
        (2, "invalid", "no such id"),
        (3, "invalid", "UnicodeError: no such text"),
        (4, "failed", "KeyError: 'weights'"),
        (5, "failed", "TypeError: Encoding objects of type object is unsupported"),
    ],
)
def test_what_a_decoder_raises_is_an_error_and_the_next_request_is_answered(
    first: int, reason: str, words: str
) -> None:
    _, error, good = session(START, asked(first), asked(0, 2))
    assert error == protocol.Error(id=1, message=words, reason=reason)
    assert good.completions[0].tokens == [7, 7, 7]


def test_a_stream_that_breaks_is_an_error() -> None:
    _, *pieces, error = session(START, streamed(4), protocol.Next(id=2), protocol.Next(id=3))
    assert [piece.tokens for piece in pieces] == [[0], [1]]
    assert (error.id, error.message) == (3, "KeyError: 'weights'")


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        ("unsupported", "unsupported", "not p"),
        ("invalid", "invalid", "no such kind"),
        ("failed", "failed", "OSError: no device"),
    ],
)
def test_a_factory_that_raises_is_an_error(kind: str, reason: str, words: str) -> None:
    start = msgspec.structs.replace(START, options={"kind": kind})
    assert session(start) == [protocol.Error(id=0, message=words, reason=reason)]


@pytest.mark.parametrize("name", ["hosted:nothing", "no_such_module:build"])
def test_a_factory_that_is_not_there_is_an_error(name: str) -> None:
    [error] = session(START, name=name)
    assert isinstance(error, protocol.Error)
    assert error.reason == "failed"


def test_a_request_before_start_is_an_error() -> None:
    [error] = session(asked(0))
    assert error == protocol.Error(
        id=1, message="the first message must be start", reason="invalid"
    )


def test_an_impossible_token_is_sent_in_a_number_that_json_has() -> None:
    _, answer = session(START, asked(6))
    assert answer.completions[0].logprobs == [protocol.BANNED] * 3
    with pytest.raises(msgspec.ValidationError, match="got `null`"):
        session(START, asked(7))  # not a number is not a number


@pytest.mark.parametrize("last", [[protocol.Stop(id=2)], []])
def test_a_decoder_is_closed_at_the_end(tmp_path: Path, last: list[ToChild]) -> None:
    closed = tmp_path / "closed"
    session(msgspec.structs.replace(START, options={"closed": str(closed)}), *last)
    assert closed.exists()


def process(*arguments: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    command = [sys.executable, "-m", "harness.host", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, input=lines, env=environment, capture_output=True, check=False)


def test_nothing_but_answers_goes_to_stdout_and_nobody_else_reads_stdin() -> None:
    messages = [START, asked(1), asked(8, 2), asked(0, 3)]
    lines = b"".join(msgspec.json.encode(message) + b"\n" for message in messages)
    done = process("hosted:troublesome", lines=lines)
    assert done.returncode == 0
    answers = [msgspec.json.decode(line, type=FromChild) for line in done.stdout.splitlines()]
    assert [answer.id for answer in answers] == [0, 1, 2, 3]
    assert answers[2].completions[0].tokens == [7, 7, 0]  # type: ignore[union-attr]
    for words in (b"loading a page", b"from C", b"from a process"):
        assert words in done.stderr


@pytest.mark.parametrize("arguments", [[], ["hosted"], ["hosted:engine", "more"]])
def test_a_wrong_name_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    done = process(*arguments)
    words = b"error: give one package.module:factory\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", words)


def test_it_needs_neither_torch_nor_transformers() -> None:
    found = "import sys, harness.host; print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", found], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"set()\n"
