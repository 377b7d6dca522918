"""Failures are made smaller, with a bounded number of tries."""

from __future__ import annotations

import functools

import decoders
import pytest
from decoders import Wrong

from harness.checks.minimise import TRIES, smallest, smallest_calls
from harness.checks.reproduce import Call, source
from harness.checks.smaller import only_with
from harness.checks.subject import Subject
from harness.contract import Grammar, Request, Sampling
from harness.models import load_pair
from harness.verdict import FaultClass

load = functools.cache(load_pair)
LARGE = Request(
    prompt=tuple(range(1, 13)),
    max_new_tokens=24,
    draft_tokens=7,
    sampling=Sampling(presence_penalty=0.5, logit_bias={3: 1.0}),
    eos=(5,),
    stop=((6, 7),),
    logprobs=True,
    seed=9,
)


def subject() -> Subject:
    return Subject(Wrong(load("tiny"), decoders.asked()), load("tiny"), "no:name")


def test_what_always_fails_becomes_the_smallest_request_there_is() -> None:
    found = smallest(subject(), LARGE, lambda request: True)
    assert found == Request(prompt=(0,), max_new_tokens=1, draft_tokens=1)


def test_what_a_failure_needs_is_kept() -> None:
    def fails(request: Request) -> bool:
        return request.max_new_tokens >= 6 and request.draft_tokens >= 3 and 7 in request.prompt

    found = smallest(subject(), LARGE, fails)
    assert found == Request(prompt=(7,), max_new_tokens=6, draft_tokens=3)


def test_parameters_that_it_takes_are_kept_and_named() -> None:
    found = smallest(subject(), LARGE, lambda r: r.sampling.presence_penalty > 0 and r.logprobs)
    assert found.sampling == Sampling(presence_penalty=0.5)
    assert only_with(found) == (["presence_penalty", "logprobs"], FaultClass.PROCESSORS)
    assert only_with(Request(prompt=(1,), max_new_tokens=9)) == ([], None)


def test_the_decoder_is_asked_no_oftener_than_allowed() -> None:
    asked: list[Request] = []

    def fails(request: Request) -> bool:
        asked.append(request)
        return len(request.prompt) + request.max_new_tokens > 20

    smallest(subject(), LARGE, fails, tries=11)
    assert len(asked) == 11
    asked.clear()
    assert smallest(subject(), LARGE, lambda r: asked.append(r) is not None) == LARGE
    assert 0 < len(asked) <= TRIES


def test_nothing_that_makes_no_sense_or_is_undeclared_is_tried() -> None:
    grammar = Grammar(({1: 0, 5: 1}, {}))
    request = Request(
        prompt=(1,), max_new_tokens=4, eos=(5,), sampling=Sampling(grammar=grammar), seed=1
    )
    asked: list[Request] = []
    smallest(subject(), request, lambda r: bool(asked.append(r)))
    assert asked
    assert all(r.eos for r in asked if r.sampling.grammar == grammar)


def test_calls_and_rows_that_do_not_matter_are_left_out() -> None:
    rows = tuple(Request(prompt=(n, n + 1), max_new_tokens=3) for n in range(1, 5))
    calls = [Call((row,)) for row in rows] + [Call((rows[3],), pieces=2), Call(rows)]

    def fails(some: list[Call]) -> bool:
        closed = any(call.pieces for call in some[:-1])
        return closed and any(3 in request.prompt for request in some[-1].requests)

    found = smallest_calls(subject(), calls, fails, 200)
    plain = Request(prompt=(0,), max_new_tokens=1, draft_tokens=1)
    last = Request(prompt=(3,), max_new_tokens=1, draft_tokens=1)
    assert list(found) == [Call((plain,), pieces=2), Call((last,))]


@pytest.mark.parametrize("request_", [LARGE, Request(prompt=(1,), max_new_tokens=2)])
def test_the_source_of_a_request_is_that_request(request_: Request) -> None:
    assert eval(source(request_)) == request_
    assert "temperature" not in source(request_)
