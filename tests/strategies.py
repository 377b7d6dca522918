"""Hypothesis strategies of several tests. They draw structure; chance is drawn elsewhere."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.checks.exact_law import distributions
from harness.checks.requests import GREEDY as GREEDY
from harness.checks.requests import HOT as HOT
from harness.checks.requests import requests as requests
from harness.checks.requests import samplings as samplings
from harness.checks.requests import token_lists as token_lists
from harness.contract import Request, Sampling
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
