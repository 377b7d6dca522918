"""Prompt lookup against a search written the slow way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, token_lists

from harness.contract import Request
from reference_impl.batch import Batch
from reference_impl.drafters.ngram import NgramDrafter, NgramTable


def continuation(text: tuple[int, ...], longest: int, shortest: int) -> tuple[int, ...]:
    """What followed the last earlier occurrence of the longest suffix that has one."""
    for size in range(longest, shortest - 1, -1):
        for start in reversed(range(len(text) - size)):
            if size < len(text) and text[start : start + size] == text[-size:]:
                return text[start + size :]
    return ()


def batch_of(texts: list[tuple[int, ...]], room: list[int]) -> Batch:
    """Rows whose text so far is the prompt."""
    rows = [
        Request(prompt=text, max_new_tokens=n + 1, draft_tokens=max(n, 1), speculate=n > 0)
        for text, n in zip(texts, room, strict=True)
    ]
    return Batch(rows, vocab=8, device=torch.device("cpu"))


@examples(150)
@given(
    st.lists(
        st.tuples(st.integers(2, 4).flatmap(lambda v: token_lists(v, 1, 14)), st.integers(0, 5)),
        min_size=1,
        max_size=4,
    ),
    st.tuples(st.integers(1, 4), st.integers(1, 4)).map(sorted),
)
def test_proposes_what_followed_the_longest_suffix_last(
    rows: list[tuple[tuple[int, ...], int]], sizes: list[int]
) -> None:
    texts, room = [text for text, _ in rows], [n for _, n in rows]
    shortest, longest = sizes
    batch = batch_of(texts, room)
    proposal = NgramDrafter(longest, shortest).propose(batch, batch.room())
    assert proposal.q is None
    assert proposal.tokens.shape == (len(rows), max(proposal.count))
    for row, (text, n) in enumerate(rows):
        drafts = tuple(proposal.tokens[row, : proposal.count[row]].tolist())
        assert drafts == continuation(text, longest, shortest)[:n]


def test_examples() -> None:
    texts = [(1, 2, 3, 1, 2), (1, 2, 3), (7, 7, 7), (1, 2, 5, 1, 2, 6, 1, 2)]
    batch = batch_of(texts, [2, 2, 2, 3])
    proposal = NgramDrafter().propose(batch, batch.room())
    assert proposal.count.tolist() == [2, 0, 1, 3]
    assert proposal.tokens[0, :2].tolist() == [3, 1]
    assert proposal.tokens[2, :1].tolist() == [7]
    assert proposal.tokens[3].tolist() == [6, 1, 2]


def test_an_ended_row_proposes_nothing() -> None:
    batch = batch_of([(1, 1, 1), (1, 1, 1)], [2, 2])
    batch.active[0] = False
    proposal = NgramDrafter().propose(batch, batch.room())
    assert proposal.count.tolist() == [0, 1]


@pytest.mark.parametrize("sizes", [(3, 0), (1, 2), (0, 0)])
def test_senseless_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"max_ngram {sizes[0]}"):
        NgramDrafter(*sizes)


def test_lookup_sees_only_the_row_s_own_text() -> None:
    """Beyond a row's length lie zeros, or what was written there: no part of the text."""
    tokens = np.array([[1, 2, 1, 9, 1, 9]])
    assert NgramDrafter(1).lookup(tokens, np.array([3])).tolist() == [1]
    assert NgramDrafter(1).lookup(tokens, np.array([2])).tolist() == [2]


@examples(100)
@given(
    st.lists(token_lists(3, 6, 24), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_a_table_proposes_the_same_as_a_search(
    texts: list[tuple[int, ...]], steps: list[int]
) -> None:
    """Whatever was committed between two rounds, and after rows have gone."""
    batch = batch_of([text[:2] for text in texts], [22] * len(texts))
    search, table = NgramDrafter(), NgramTable()
    table.start(batch, 0)
    for step in [0, *steps]:
        for row in range(len(batch)):
            batch.tokens[row, : len(texts[row])] = texts[row]
        batch.length = np.minimum(batch.length + step, [len(text) for text in texts])
        one, other = (drafter.lookup(batch.tokens, batch.length) for drafter in (search, table))
        assert one.tolist() == other.tolist()
    if len(texts) > 1:
        batch.select(np.array([1]))
        table.select(torch.tensor([1]))
        assert (
            search.lookup(batch.tokens, batch.length) == table.lookup(batch.tokens, batch.length)
        ).all()


def test_a_table_forgets_when_it_starts() -> None:
    long, short = batch_of([(1, 2, 3, 4, 1, 2)], [4]), batch_of([(5, 1)], [4])
    table = NgramTable()
    table.start(long, 0)
    assert table.propose(long, long.room()).tokens.tolist() == [[3, 4, 1, 2]]
    table.start(short, 0)
    assert table.propose(short, short.room()).count.tolist() == [0]
