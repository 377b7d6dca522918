"""Hypothesis strategies of whole requests, within what a decoder declares.

They draw structure; chance is drawn elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from harness.contract import CAPABILITIES, Grammar, Request, Sampling

HOT = st.sampled_from([0.3, 0.7, 1.0, 1.7])
GREEDY = st.just(0.0)
ALL = frozenset(CAPABILITIES)


def mostly(neutral: object, other: st.SearchStrategy) -> st.SearchStrategy:
    """The neutral value half of the time, so that parameters are also met one by one."""
    return st.just(neutral) | other


def token_lists(
    vocab: int, least: int, most: int, ids: st.SearchStrategy | None = None
) -> st.SearchStrategy:
    """Tuples of token ids, any of the vocabulary if no others are given."""
    ids = st.integers(0, vocab - 1) if ids is None else ids
    return st.lists(ids, min_size=least, max_size=most).map(tuple)


@st.composite
def grammars(draw: st.DrawFn, vocab: int, eos: tuple[int, ...]) -> Grammar | None:
    """Automata of up to three states, some with an end at an EOS, that never forbid all else."""
    ordinary = sorted(set(range(vocab)) - set(eos))
    if not ordinary:
        return None
    rng = random.Random(draw(st.integers(0, 2**16)))
    count, density = draw(st.integers(1, 3)), draw(st.sampled_from([0.1, 0.5, 0.9]))
    states = []
    for _ in range(count):
        allowed = {rng.choice(ordinary), *(t for t in ordinary if rng.random() < density)}
        states.append({token: rng.randrange(count) for token in sorted(allowed)})
    if draw(st.booleans()) and eos:
        states[rng.randrange(count)][rng.choice(eos)] = count
        states.append({})
    return Grammar(tuple(states))


@st.composite
def samplings(
    draw: st.DrawFn,
    vocab: int,
    temperatures: st.SearchStrategy,
    eos: tuple[int, ...] = (),
    declared: Collection[str] = ALL,
) -> Sampling:
    """Any combination of sampling parameters over ``vocab`` ids."""
    biases = st.dictionaries(
        st.integers(0, vocab - 1), st.sampled_from([-100.0, -1.5, 0.25, 3.0, 100.0]), max_size=2
    )
    others = {
        "top_k": ("top_k", 0, st.integers(1, min(vocab, 64) + 2)),
        "top_p": ("top_p", 1.0, st.integers(1, 20).map(lambda n: n / 20)),
        "min_p": ("min_p", 0.0, st.sampled_from([0.01, 0.1, 0.5, 1.0])),
        "repetition_penalty": ("penalties", 1.0, st.sampled_from([0.7, 1.2, 2.0])),
        "presence_penalty": ("penalties", 0.0, st.sampled_from([-0.5, 0.5, 2.0])),
        "frequency_penalty": ("penalties", 0.0, st.sampled_from([-0.25, 0.3, 1.0])),
        "min_new_tokens": ("min_new_tokens", 0, st.integers(1, 6)),
        "logit_bias": ("logit_bias", {}, biases),
        "grammar": ("grammar", None, mostly(None, grammars(vocab, eos))),
    }
    drawn = {
        name: draw(mostly(neutral, other))
        for name, (capability, neutral, other) in others.items()
        if capability in declared
    }
    return Sampling(temperature=draw(temperatures), **drawn)


@st.composite
def requests(
    draw: st.DrawFn,
    vocab: int,
    temperatures: st.SearchStrategy = GREEDY,
    longest: int = 24,
    declared: Collection[str] = ALL,
    ends: st.SearchStrategy | None = None,
) -> Request:
    """Requests whose ends (EOS, stop, length) fall anywhere in a block.

    Parameters
    ----------
    longest : int
        Most new tokens.
    declared : collection of str
        Capabilities that a request may ask for.
    ends : strategy of int, optional
        Ids of EOS and stop sequences; any, if not given.
    """

    def either(capability: str, neutral: Any, other: st.SearchStrategy[Any]) -> Any:
        return draw(other) if capability in declared else neutral

    sequences = token_lists(vocab, 1, 1, ends) | token_lists(vocab, 1, 3, ends)
    stops = st.lists(sequences, min_size=1, max_size=3).map(tuple)
    eos = either("eos", (), mostly((), token_lists(vocab, 1, 3, ends)))
    return Request(
        prompt=draw(token_lists(vocab, 1, 12)),
        max_new_tokens=draw(st.integers(1, longest)),
        sampling=draw(samplings(vocab, temperatures, eos, declared)),
        seed=either("seed", None, st.integers(0, 2**32)),
        eos=eos,
        stop=either("stop", (), mostly((), stops)),
        speculate=either("plain", True, st.sampled_from([True, True, True, False])),
        draft_tokens=draw(st.integers(1, 8)),
        logprobs=either("logprobs", False, st.booleans()),
    )
