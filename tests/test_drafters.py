"""Drafting families on the engine: greedy ids are plain decoding's, and proposals what they say."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, token_lists

from harness.contract import Request, Sampling
from harness.models import ModelPair, load_pair
from reference_impl import autoregressive
from reference_impl.batch import Batch
from reference_impl.drafters.cascade import CascadeDrafter
from reference_impl.drafters.early_exit import EarlyExitDrafter, first_layers
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.drafters.suffix import SuffixAutomaton, SuffixDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Drafter
from reference_impl.randomness import Seeded

Make = Callable[[ModelPair], Drafter]
DRAFTERS: dict[str, Make] = {
    "early exit": lambda pair: EarlyExitDrafter(pair.target, 1, pair.vocab_size),
    "suffix": lambda pair: SuffixDrafter(),
    "cascade": lambda pair: CascadeDrafter(NgramDrafter(2, 2), pair.draft, pair.vocab_size),
    "cascade of a suffix": lambda pair: CascadeDrafter(
        SuffixDrafter(2), pair.draft, pair.vocab_size
    ),
}
PAIRS = ["tiny", "tiny-bad", "tiny-gpt2", "tiny-window", "tiny-mamba"]

HOT = Sampling(temperature=1.3)

load = functools.cache(load_pair)


def exact(name: str) -> ModelPair:
    return load(name, dtype=torch.float64)


def plain(pair: ModelPair, request: Request) -> list[int]:
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    return autoregressive.decode(laws, request, Seeded(request.seed)).tokens


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_ids_are_those_of_plain_decoding(drafter: str, name: str) -> None:
    pair = exact(name)
    rows = [
        Request(prompt=prompt, max_new_tokens=n, draft_tokens=k)
        for prompt, n, k in (
            ((1, 2, 3), 24, 4),
            ((5, 6, 7, 5, 6, 7, 5, 6), 30, 6),
            ((9,), 12, 1),
            ((4, 4, 4, 4), 40, 3),
            ((2, 3), 1, 2),
        )
    ]
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    expected = [plain(pair, row) for row in rows]
    assert [answer.tokens for answer in engine.generate(rows)] == expected
    for row, tokens in zip(rows, expected, strict=True):
        [alone] = engine.generate([row])
        assert alone.tokens == tokens


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_draws_the_same_alone_and_in_a_batch(drafter: str) -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=(i, i + 1, i), max_new_tokens=20, draft_tokens=3, sampling=HOT, seed=i)
        for i in range(6)
    ]
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    together = [answer.tokens for answer in engine.generate(rows)]
    assert together == [engine.generate([row])[0].tokens for row in rows]


# Early exit


def test_an_exit_shares_the_weights_and_leaves_the_target_whole() -> None:
    target = exact("tiny").target
    draft = first_layers(target, 1)
    assert (draft.config.num_hidden_layers, target.config.num_hidden_layers) == (1, 2)
    assert (len(draft.model.layers), len(target.model.layers)) == (1, 2)
    own = {id(parameter) for parameter in target.parameters()}
    assert {id(parameter) for parameter in draft.parameters()} < own


def test_an_exit_is_the_head_on_the_first_layers() -> None:
    target, ids = exact("tiny").target, torch.tensor([[1, 2, 3, 4]])
    states = target(ids, output_hidden_states=True).hidden_states[1]
    expected = target.lm_head(target.model.norm(states))
    torch.testing.assert_close(first_layers(target, 1)(ids).logits, expected)


@pytest.mark.parametrize("layers", [0, 2, 3])
def test_an_exit_that_is_none(layers: int) -> None:
    with pytest.raises(ValueError, match="this target exits after 1 to 1"):
        first_layers(exact("tiny").target, layers)


# Suffixes


def longest_match(text: tuple[int, ...]) -> int:
    """Length of the longest suffix that occurred before, the slow way."""
    n = len(text)
    found = (
        size
        for size in range(n - 1, 0, -1)
        if any(text[i : i + size] == text[-size:] for i in range(n - size))
    )
    return next(found, 0)


@examples(300)
@given(st.integers(1, 3).flatmap(lambda vocab: token_lists(vocab, 1, 40)))
def test_the_automaton_finds_the_longest_match_and_a_place_of_it(text: tuple[int, ...]) -> None:
    automaton = SuffixAutomaton()
    for n, token in enumerate(text, 1):
        automaton.append(token)
        size = longest_match(text[:n])
        assert automaton.matched == size
        if size:
            assert automaton.after < n
            assert text[automaton.after - size : automaton.after] == text[n - size : n]


def test_the_automaton_is_linear_in_the_text() -> None:
    automaton = SuffixAutomaton()
    for token in [0] * 500 + [0, 1] * 500:
        automaton.append(token)
    assert len(automaton._next) <= 2 * 1500


def test_a_suffix_that_is_too_short_proposes_nothing() -> None:
    rows = [Request(prompt=(1, 2, 3, 1, 2), max_new_tokens=5, draft_tokens=4)]
    batch = Batch(rows, vocab=8, device=torch.device("cpu"))
    for shortest, expected in ((2, [3, 1, 2]), (3, [])):
        drafter = SuffixDrafter(shortest)
        drafter.start(batch, 16)
        proposal = drafter.propose(batch, batch.room())
        assert proposal.tokens[0, : proposal.count[0]].tolist() == expected
    with pytest.raises(ValueError, match="at least 1"):
        SuffixDrafter(0)


# Cascades


def test_a_cascade_asks_the_model_only_where_nothing_is_found() -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=prompt, max_new_tokens=9, draft_tokens=3, sampling=HOT, seed=1)
        for prompt in ((1, 2, 3, 4, 1, 2), (5, 6, 7, 8, 9, 10))
    ]
    drafter = CascadeDrafter(NgramDrafter(2, 2), pair.draft, pair.vocab_size)
    batch = Batch(rows, pair.vocab_size, torch.device("cpu"))
    drafter.start(batch, 32)
    proposal = drafter.propose(batch, batch.room())
    assert proposal.count.tolist() == [3, 3]
    assert proposal.tokens[0].tolist() == [3, 4, 1]
    assert proposal.q is not None
    point = proposal.q[0].argmax(-1)
    assert torch.equal(point, proposal.tokens[0])
    assert proposal.q[0].max() == 1
    assert 0 < proposal.q[1].max() < 1
    np.testing.assert_allclose(proposal.q.sum(-1), 1, rtol=1e-5)
