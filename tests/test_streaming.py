"""Streams that lose, repeat or leave behind something."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from decoders import ALL, Wrong, asked

from harness.adapters import load_decoder
from harness.adapters.reference import engine
from harness.checks import streaming
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Request
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(3,), prompts=1, new_tokens=12, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[Check] = [streaming.pieces, streaming.every_id, streaming.cancel]
Stream = Callable[[Iterator[list[int]]], Iterator[Any]]


class Streams:
    """The reference, whose stream is changed on its way."""

    def __init__(self, change: Stream, capabilities: frozenset[str] = ALL) -> None:
        self.capabilities = capabilities
        self.right, self.change = engine(load("tiny-self")), change

    def generate(self, requests: list[Request]) -> list[Completion]:
        return self.right.generate(requests)

    def stream(self, request: Request) -> Iterator[Any]:
        return self.change(self.right.stream(request))


def subject(decoder: Decoder | str) -> Subject:
    pair = load("tiny-self")
    if isinstance(decoder, str):
        decoder = load_decoder(decoder, pair)
    return Subject(decoder, pair, "no:name")


def without_last(pieces: Iterator[list[int]]) -> Iterator[list[int]]:
    tokens = [token for piece in pieces for token in piece]
    yield tokens[:-1]


def one_more(pieces: Iterator[list[int]]) -> Iterator[list[int]]:
    yield from pieces
    yield [0]


def twice(pieces: Iterator[list[int]]) -> Iterator[list[int]]:
    last: list[int] = []
    for piece in pieces:
        yield last + piece
        last = piece[-1:]


def without_seven(pieces: Iterator[list[int]]) -> Iterator[list[int]]:
    for piece in pieces:
        yield [token for token in piece if token != 7]


@pytest.mark.parametrize("decoder", ["reference", "reference-ngram"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_reference_passes(check: Check, decoder: str) -> None:
    verdict = check(subject(decoder), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_not_declared_is_unsupported(check: Check) -> None:
    assert check(subject("reference-page"), BUDGET).status is Status.UNSUPPORTED
    neither = Streams(iter, frozenset({"stream"}))
    assert check(subject(neither), BUDGET).status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("change", "likely"),
    [
        (without_last, "never sent"),
        (one_more, "goes on behind the end"),
        (twice, "sent twice"),
    ],
)
def test_a_stream_that_is_not_the_answer(change: Stream, likely: str) -> None:
    verdict = streaming.pieces(subject(Streams(change)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.STREAM)
    assert likely in verdict.likely_fault
    assert "decoder.stream(request)" in verdict.repro


@pytest.mark.parametrize("declared", [ALL, frozenset({"stream", "sampling"})])
def test_an_id_that_is_lost(declared: frozenset[str]) -> None:
    verdict = streaming.every_id(subject(Streams(without_seven, declared)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.STREAM)
    assert "the stream gives" in verdict.message


def test_every_id_comes_up() -> None:
    verdict = streaming.every_id(subject("reference"), BUDGET)
    assert verdict.evidence["ids"] == 64
    greedy = Streams(iter, frozenset({"stream", "greedy"}))
    verdict = streaming.every_id(subject(greedy), BUDGET)
    assert verdict.passed
    assert 8 < verdict.evidence["ids"] <= 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pieces: iter([(1, 2)]), "malformed stream: a piece is a tuple, not a list"),
        (lambda pieces: iter([[1, 64]]), "malformed stream: token 64 is outside"),
        (lambda pieces: None, "the stream raised TypeError"),
    ],
)
def test_another_form_is_an_error(change: Stream, words: str) -> None:
    verdict = streaming.pieces(subject(Streams(change)), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.ERROR, True), str(verdict)


def test_a_stream_that_is_declared_and_not_there_is_an_error() -> None:
    verdict = streaming.pieces(subject(Wrong(load("tiny-self"), asked())), BUDGET)
    assert (verdict.status, "has no attribute 'stream'" in verdict.message) == (Status.ERROR, True)


def test_a_wrong_answer_is_no_fault_of_the_stream() -> None:
    class Shorter(Streams):
        def generate(self, requests: list[Request]) -> list[Completion]:
            answers = super().generate(requests)
            for request, answer in zip(requests, answers, strict=True):
                if request.speculate and len(answer.tokens) > 1:
                    answer.tokens.pop()
            return answers

    verdict = streaming.pieces(subject(Shorter(iter)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.END)


@pytest.mark.parametrize("declared", [ALL, frozenset({"stream", "sampling", "seed"})])
def test_a_closed_stream_that_leaves_something_behind(declared: frozenset[str]) -> None:
    class Remembers(Streams):
        left = 0

        def stream(self, request: Request) -> Iterator[list[int]]:
            try:
                yield from self.right.stream(request)
            except GeneratorExit:
                self.left = 1
                raise

        def generate(self, requests: list[Request]) -> list[Completion]:
            answers = self.right.generate(requests)
            for answer in answers:
                answer.tokens[0] ^= self.left
            return answers

    verdict = streaming.cancel(subject(Remembers(iter, declared)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.STREAM)
    assert "stream.close()" in verdict.repro
