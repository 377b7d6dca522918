"""What a decoder answers is looked at before it is judged: form, rounds, capabilities."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import decoders
import msgspec
import numpy as np
import pytest
import torch
from decoders import Wrong, answered

from harness.checks import greedy, smoke, stopping
from harness.checks.budget import Budget
from harness.checks.form import malformed, wrong_logprobs
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Round
from harness.models import load_pair
from harness.verdict import Status, Verdict

load = functools.cache(load_pair)
BUDGET = Budget(draft_tokens=(3,), prompts=1, new_tokens=8, samples=100, tables=1)
Check = Callable[[Subject, Budget], Verdict]


def subject_of(decoder: Wrong) -> Subject:
    return Subject(decoder, load("tiny"), "no:name")


def completion(tokens: Any = (), **fields: Any) -> Completion:
    tokens = [1, 2] if tokens == () else tokens
    return Completion(**{"tokens": tokens, "finish_reason": "length"} | fields)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "a completion is a NoneType"),
        ([1, 2], "a completion is a list"),
        (completion([]), "no tokens"),
        (completion(None), "tokens are a NoneType, not a list"),
        (completion((1, 2)), "tokens are a tuple, not a list"),
        (completion(tokens=torch.tensor([1, 2])), "tokens are a Tensor, not a list"),
        (completion([1, 8]), "token 8 is outside the vocabulary 0..7"),
        (completion([-1, 2]), "token -1 is outside the vocabulary 0..7"),
        (completion([np.int64(1)]), "is a int64, not an int"),
        (completion([1.0]), "token 1.0 is a float, not an int"),
        (completion([True]), "token True is a bool, not an int"),
        (completion(finish_reason="eof"), "finish_reason is 'eof'"),
        (completion(finish_reason=None), "finish_reason is None"),
        (completion(logprobs=[-1, -2], rounds=[(4, 2)]), "rounds are not a list of Round"),
        (completion(logprobs=[-1.0, -2.0], metrics={"tokens": 2}), "metrics are a dict"),
    ],
)
def test_a_malformed_completion_is_described(answer: Any, words: str) -> None:
    assert words in malformed(answer, 8)


@pytest.mark.parametrize(
    ("logprobs", "words"),
    [
        (None, "not one for every token"),
        ([-1.0], "not one for every token"),
        ([-1.0, float("nan")], "above 0 or not a number"),
        ([-1.0, 0.5], "above 0 or not a number"),
        ([-1.0, math.inf], "above 0 or not a number"),
        ([-1.0, None], "above 0 or not a number"),
    ],
)
def test_malformed_log_probabilities_are_described(logprobs: Any, words: str) -> None:
    request = Request(prompt=(1,), max_new_tokens=2, logprobs=True)
    assert words in wrong_logprobs(request, completion(logprobs=logprobs))


def test_a_good_completion_is_not() -> None:
    good = completion(logprobs=[-1.0, 0.0], rounds=[Round(4, 1)])
    assert malformed(good, 8) == ""
    asked = Request(prompt=(1,), max_new_tokens=2, logprobs=True)
    assert wrong_logprobs(asked, good) == ""
    assert wrong_logprobs(Request(prompt=(1,), max_new_tokens=2), completion()) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda right, requests: None, "requests were answered by a NoneType"),
        (lambda right, requests: [], "requests were answered by 0 completions"),
        (lambda right, requests: iter(()), "answered by a tuple_iterator"),
        (answered(lambda c: msgspec.structs.replace(c, tokens=[99])), "outside the vocabulary"),
        (answered(lambda c: c.tokens), "a completion is a list"),
    ],
)
@pytest.mark.parametrize("check", [smoke.wired, greedy.identity, stopping.eos])
def test_a_malformed_answer_is_an_error_in_every_check(
    answer: Any, words: str, check: Check
) -> None:
    verdict = check(subject_of(Wrong(load("tiny"), answer, plain=True)), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.ERROR, True), str(verdict)


# --- the adapter --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (None, "rounds are declared, and none is reported"),
        ([], "there is none"),
        ([Round(4, 5)], "round 0 accepts 5 of 4"),
        ([Round(4, -1)], "round 0 accepts -1 of 4"),
        ([Round(4, 0)], "rounds emit 1 tokens, the output has 8"),
        ([Round(4, 4)] * 3, "rounds emit 15 tokens, the output has 8"),
    ],
)
def test_rounds_that_cannot_be_are_an_error(rounds: Any, words: str) -> None:
    wrong = answered(lambda c: msgspec.structs.replace(c, rounds=rounds))
    verdict = smoke.wired(subject_of(Wrong(load("tiny"), wrong)), BUDGET)
    assert (verdict.status, words in verdict.message) == (Status.ERROR, True), str(verdict)


def test_an_unknown_capability_is_an_error() -> None:
    decoder = Wrong(load("tiny"), decoders.asked())
    decoder.capabilities = frozenset({"greedy", "telepathy"})
    verdict = smoke.wired(subject_of(decoder), BUDGET)
    assert (verdict.status, "telepathy" in verdict.message) == (Status.ERROR, True)
