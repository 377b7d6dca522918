"""Requests that are smaller than a given one: what to try next when it fails.

Every way yields the boldest step first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from harness.contract import Grammar, Request, Sampling
from harness.verdict import FaultClass

Thing = TypeVar("Thing")
Way = Callable[[Thing], Iterator[Thing]]

NEUTRAL = Sampling()
OF_PARAMETERS = {
    "repetition_penalty": FaultClass.PROCESSORS,
    "presence_penalty": FaultClass.PROCESSORS,
    "frequency_penalty": FaultClass.PROCESSORS,
    "logit_bias": FaultClass.PROCESSORS,
    "grammar": FaultClass.PROCESSORS,
    "top_k": FaultClass.PARAMETERS,
    "top_p": FaultClass.PARAMETERS,
    "min_p": FaultClass.PARAMETERS,
    "min_new_tokens": FaultClass.END,
}
OF_REQUEST = {"eos": FaultClass.END, "stop": FaultClass.END, "logprobs": FaultClass.LOGPROBS}


def only_with(request: Request) -> tuple[Sequence[str], FaultClass | None]:
    """Parameters that are left in a request from which nothing more can be taken.

    Returns
    -------
    sequence of str
        Their names.
    FaultClass or None
        Of a fault that needs them; None where there are none.
    """
    sampling, plain = request.sampling, Request(prompt=request.prompt, max_new_tokens=1)
    kinds = {n: k for n, k in OF_PARAMETERS.items() if getattr(sampling, n) != getattr(NEUTRAL, n)}
    kinds |= {n: k for n, k in OF_REQUEST.items() if getattr(request, n) != getattr(plain, n)}
    return list(kinds), next(iter(kinds.values()), None)


def with_item(items: Sequence[Thing], at: int, item: Thing) -> Sequence[Thing]:
    return [*items[:at], item, *items[at + 1 :]]


def without_a_part(items: Sequence[Thing]) -> Iterator[Sequence[Thing]]:
    """Without all, without either half, and so on down to single items."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2


def _plainer(request: Request) -> Iterator[Request]:
    """Parameters at their neutral values: all at once, and one by one."""
    sampling = request.sampling
    neutral = Sampling(temperature=sampling.temperature)
    plain = replace(request, sampling=neutral, eos=(), stop=(), logprobs=False)
    yield replace(plain, seed=None) if sampling.greedy else plain
    for name in Sampling.__struct_fields__:
        value = getattr(neutral, name)
        yield replace(request, sampling=replace(sampling, **{name: value}))
    yield replace(request, eos=())
    yield replace(request, stop=())
    yield replace(request, logprobs=False)
    yield replace(request, seed=None if sampling.greedy else 0)


def _narrower(request: Request) -> Iterator[Request]:
    for k in _below(request.draft_tokens):
        yield replace(request, draft_tokens=k)


def _shorter(request: Request) -> Iterator[Request]:
    for length in _below(request.max_new_tokens):
        yield replace(request, max_new_tokens=length)


def _less_prompt(request: Request) -> Iterator[Request]:
    for kept in without_a_part(request.prompt):
        yield replace(request, prompt=tuple(kept))


def _zeroes(request: Request) -> Iterator[Request]:
    yield replace(request, prompt=(0,) * len(request.prompt))
    for i in range(len(request.prompt)):
        yield replace(request, prompt=tuple(with_item(request.prompt, i, 0)))


def _less_grammar(request: Request) -> Iterator[Request]:
    if not (grammar := request.sampling.grammar):
        return
    for i, state in enumerate(grammar.states):
        for kept in without_a_part(tuple(state.items())):
            states = tuple(with_item(grammar.states, i, dict(kept)))
            yield replace(request, sampling=replace(request.sampling, grammar=Grammar(states)))


def _below(number: int) -> Sequence[int]:
    """Some smaller numbers, at least 1."""
    some = {1, 2, number // 2, 3 * number // 4, number - 1}
    return sorted(n for n in some if 1 <= n < number)


WAYS: Sequence[Way[Request]] = (
    _plainer,
    _narrower,
    _shorter,
    _less_prompt,
    _zeroes,
    _less_grammar,
)
