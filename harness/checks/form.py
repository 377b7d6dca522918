"""The form of an answer, before anybody asks whether it is right."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contract import Completion, Metrics, Request, Round


def malformed(completion: Completion, vocab: int) -> str:
    """What is wrong with the form of a completion, empty if nothing is."""
    if not isinstance(completion, Completion):
        return f"a completion is a {type(completion).__name__}"
    if not isinstance(completion.tokens, list):
        return f"tokens are a {type(completion.tokens).__name__}, not a list"
    if not completion.tokens:
        return "no tokens were generated"
    if problem := no_token(completion.tokens, vocab):
        return problem
    if completion.finish_reason not in ("eos", "stop", "length"):
        return f"finish_reason is {completion.finish_reason!r}"
    rounds = completion.rounds
    if rounds is not None and not all(isinstance(entry, Round) for entry in rounds):
        return "rounds are not a list of Round"
    if completion.metrics is not None and not isinstance(completion.metrics, Metrics):
        return f"metrics are a {type(completion.metrics).__name__}, not Metrics"
    return ""


def wrong_logprobs(request: Request, completion: Completion) -> str:
    """What is wrong with the form of the log probabilities, empty if nothing is."""
    if not request.logprobs:
        return ""
    values = completion.logprobs
    if values is None or len(values) != len(completion.tokens):
        return "logprobs were asked for, and there is not one for every token"
    for value in values:
        # An impossible token that says so, by -inf, is the business of other checks.
        if not isinstance(value, (int, float)) or not value <= 1e-4:  # which NaN is not either
            return f"log probability {value!r} is above 0 or not a number"
    return ""


def no_token(tokens: Sequence[object], vocab: int) -> str:
    """Which of the tokens is none, empty if all are."""
    for token in tokens:
        if type(token) is not int:
            return f"token {token!r} is a {type(token).__name__}, not an int"
        if not 0 <= token < vocab:
            return f"token {token} is outside the vocabulary 0..{vocab - 1}"
    return ""


def disordered(requests: Sequence[Request], completions: Sequence[Completion]) -> str:
    """Whether answers have come in another order than their requests, empty if not.

    It shows where nothing but max_new_tokens may end an output, in lengths that are all there and
    not where they belong.
    """
    if any(request.eos or request.stop for request in requests):
        return ""
    asked = [request.max_new_tokens for request in requests]
    got = [len(getattr(completion, "tokens", None) or ()) for completion in completions]
    if got == asked or sorted(got) != sorted(asked):
        return ""
    return (
        "the answers come in another order than the requests: max_new_tokens are "
        f"{', '.join(map(str, asked[:8]))}, the answers have {', '.join(map(str, got[:8]))} tokens"
    )
