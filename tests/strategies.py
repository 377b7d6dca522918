"""Hypothesis strategies of several tests. They draw structure; chance is drawn elsewhere."""

from __future__ import annotations

import random

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.checks.exact_law import distributions
from harness.contract import Grammar, Request, Sampling
from harness.stats.rows import Rows, checked
from reference_impl import sampling


def examples(count: int) -> settings:
    """The same ``count`` examples in every run: a red test is red again."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def mostly(neutral: float, other: st.SearchStrategy) -> st.SearchStrategy:
    """The neutral value half of the time, so that parameters are also met one by one."""
    return st.just(neutral) | other


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
    if eos and draw(st.booleans()):
        states[rng.randrange(count)][rng.choice(eos)] = count
        states.append({})
    return Grammar(tuple(states))


@st.composite
def samplings(
    draw: st.DrawFn, vocab: int, temperatures: st.SearchStrategy, eos: tuple[int, ...] = ()
) -> Sampling:
    """Any combination of sampling parameters over ``vocab`` ids."""
    biases = st.dictionaries(
        st.integers(0, vocab - 1), st.sampled_from([-100.0, -1.5, 0.25, 3.0, 100.0]), max_size=2
    )
    return Sampling(
        temperature=draw(temperatures),
        top_k=draw(mostly(0, st.integers(1, vocab + 2))),
        top_p=draw(mostly(1.0, st.integers(1, 20).map(lambda n: n / 20))),
        min_p=draw(mostly(0.0, st.sampled_from([0.01, 0.1, 0.5, 1.0]))),
        repetition_penalty=draw(mostly(1.0, st.sampled_from([0.7, 1.2, 2.0]))),
        presence_penalty=draw(mostly(0.0, st.sampled_from([-0.5, 0.5, 2.0]))),
        frequency_penalty=draw(mostly(0.0, st.sampled_from([-0.25, 0.3, 1.0]))),
        min_new_tokens=draw(mostly(0, st.integers(1, 6))),
        logit_bias=draw(mostly({}, biases)),
        grammar=draw(st.none() | grammars(vocab, eos)),
    )


HOT = st.sampled_from([0.3, 0.7, 1.0, 1.7])
GREEDY = st.just(0.0)


def token_lists(vocab: int, least: int, most: int) -> st.SearchStrategy:
    """Tuples of token ids."""
    return st.lists(st.integers(0, vocab - 1), min_size=least, max_size=most).map(tuple)


@st.composite
def requests(
    draw: st.DrawFn, vocab: int, temperatures: st.SearchStrategy = GREEDY, longest: int = 24
) -> Request:
    """Requests whose ends (EOS, stop, length) fall anywhere in a block."""
    stops = st.lists(token_lists(vocab, 1, 3), max_size=2).map(tuple)
    eos = draw(mostly((), token_lists(vocab, 1, 3)))
    return Request(
        prompt=draw(token_lists(vocab, 1, 12)),
        max_new_tokens=draw(st.integers(1, longest)),
        sampling=draw(samplings(vocab, temperatures, eos)),
        seed=draw(st.integers(0, 2**32)),
        eos=eos,
        stop=draw(mostly((), stops)),
        speculate=draw(st.sampled_from([True, True, True, False])),
        draft_tokens=draw(st.integers(1, 8)),
        logprobs=draw(st.booleans()),
    )


@st.composite
def logits(draw: st.DrawFn, vocab: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits [vocab] with exact ties, and impossible tokens here and there."""
    coarse = st.integers(-8, 8).map(lambda n: n / 2)
    fine = st.floats(-9, 9, width=32)
    impossible = st.just(-torch.inf)
    two = st.sampled_from(draw(st.tuples(coarse, coarse)))  # many ties: where filters cut
    value = draw(st.sampled_from([two, coarse, fine, coarse | impossible, fine | coarse]))
    values = draw(st.lists(value, min_size=vocab, max_size=vocab))
    values[draw(st.integers(0, vocab - 1))] = draw(coarse)  # something is possible
    return torch.tensor(values, dtype=dtype)


@st.composite
def tables(draw: st.DrawFn, least: int = 1) -> tuple[Tensor, Tensor]:
    """Laws p, q [n, V] with zeros, ties, one-hot rows, disjoint supports, and p == q."""
    vocab, rows = draw(st.integers(least, 6)), draw(st.integers(1, 3))

    def table() -> Tensor:
        law = [draw(distributions(vocab)) for _ in range(rows)]
        return torch.tensor(law, dtype=torch.float64)

    kind = draw(st.sampled_from(["any", "any", "any", "same", "disjoint"]))
    p = table()
    if kind == "same":
        return p, p
    if kind == "any" or vocab == 1:
        return p, table()
    even = torch.arange(vocab) % 2 == 0
    return checked(_within(p, even)), checked(_within(table(), ~even))


def _within(law: Tensor, kept: Tensor) -> Tensor:
    law = (0.1 + law) * kept
    return law / law.sum(-1, keepdim=True)


@st.composite
def observations(draw: st.DrawFn, least: int = 1) -> Rows:
    """Any tokens after any laws, with what the named experts look at."""
    p, q = draw(tables(least))
    n, vocab = p.shape
    tokens = st.lists(st.integers(0, vocab - 1), min_size=n, max_size=n)
    replayed = st.lists(st.integers(-1, vocab - 1), min_size=n, max_size=n)
    return Rows.of(
        p,
        draw(tokens),
        q,
        previous=draw(st.sampled_from([p.roll(1, 0), q])),
        replayed=torch.tensor(draw(replayed)),
    )


@st.composite
def sampled_observations(draw: st.DrawFn) -> tuple[Sampling, Rows]:
    """Any token after a law that sampling parameters made of logits, with both of them."""
    vocab = draw(st.integers(1, 6))
    settings_ = draw(samplings(vocab, HOT))
    scores = draw(logits(vocab, draw(st.sampled_from([torch.float32, torch.float64])))).view(1, -1)
    request = Request(prompt=(0,), max_new_tokens=1, sampling=settings_)
    parameters = sampling.Parameters.of([request], vocab)
    p = sampling.normalise(scores, parameters)
    token = [draw(st.integers(0, vocab - 1))]
    return settings_, Rows.of(p, token, scores=scores, parameters=parameters)
