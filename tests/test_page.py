"""The page's exact output law, enumerated, equals the target's: for tables of any kind.

Laws here are tables: the law after an output depends on its length and its last token, so a row
taken from the wrong prefix shows. Known-wrong pages are told apart by the same comparison.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, token_lists
from torch import Tensor

from harness.checks.exact_law import (
    ACCURACY,
    Law,
    Table,
    cases,
    distance,
    distributions,
    laws_of,
    output_law,
    product_law,
)
from harness.contract import Completion, Request, Round
from reference_impl import speculative
from reference_impl.autoregressive import Laws, decode
from reference_impl.randomness import Randomness, enumerate_outcomes
from reference_impl.speculative import Propose, draft_with, residual


@examples(150)
@given(cases())
def test_output_follows_the_target_whatever_the_draft(case: tuple[Table, Table, Request]) -> None:
    p, q, request = laws_of(case[0]), laws_of(case[1]), case[2]
    found = output_law(lambda r: speculative.decode(p, draft_with(q), request, r))
    expected = product_law(p, request)
    assert distance(found, expected) < ACCURACY
    plain = output_law(lambda r: decode(p, request, r))
    assert distance(plain, expected) < ACCURACY


@examples(100)
@given(cases(), st.data())
def test_a_fixed_proposal_is_a_draft_of_point_masses(
    case: tuple[Table, Table, Request], data: st.DataObject
) -> None:
    """Prompt lookup and the like: tokens from anywhere, fewer than asked for, or none."""
    p, request = laws_of(case[0]), case[2]
    vocab = len(case[0][0])
    guess = data.draw(token_lists(vocab, 0, 3))

    def propose(output: Sequence[int], count: int, _: Randomness) -> tuple[list[int], Tensor]:
        tokens = list(guess[:count])
        return tokens, torch.nn.functional.one_hot(torch.tensor(tokens, dtype=torch.long), vocab)

    found = output_law(lambda r: speculative.decode(p, propose, request, r))
    assert distance(found, product_law(p, request)) < ACCURACY


@examples(100)
@given(st.data(), st.integers(2, 4))
def test_a_drafted_token_is_accepted_with_the_overlap(data: st.DataObject, vocab: int) -> None:
    """Expected accepted tokens of one drafted token: sum of min(p, q) (Leviathan et al. 2023)."""
    row = distributions(vocab)
    p, q = ([[data.draw(row) for _ in range(vocab)] for _ in range(2)] for _ in "pq")
    request = Request(prompt=(0,), max_new_tokens=2, draft_tokens=1)
    expected = sum(map(min, p[0][0], q[0][0]))
    accepted = sum(
        completion.rounds[0].accepted * weight
        for completion, weight in enumerate_outcomes(
            lambda r: speculative.decode(laws_of(p), draft_with(laws_of(q)), request, r)
        )
    )
    assert accepted == pytest.approx(expected, abs=ACCURACY)


@examples(100)
@given(st.data(), st.integers(2, 6))
def test_residual_is_what_the_draft_lacks(data: st.DataObject, vocab: int) -> None:
    p, q = (torch.tensor(data.draw(distributions(vocab)), dtype=torch.float64) for _ in "pq")
    left = residual(p, q)
    if torch.equal(p, q):
        assert torch.equal(left, p)
    else:
        lacking = [max(0.0, float(x - y)) for x, y in zip(p, q, strict=True)]
        assert left.tolist() == lacking


def test_rounds_count_drafts_and_leave_room_for_the_last_token() -> None:
    uniform: Table = [[[0.5, 0.5]] * 2] * 9
    request = Request(prompt=(0,), max_new_tokens=9, draft_tokens=3)
    laws = laws_of(uniform)
    for completion, _ in enumerate_outcomes(
        lambda r: speculative.decode(laws, draft_with(laws), request, FirstChoice(r))
    ):
        assert completion.rounds == [Round(3, 3), Round(3, 3), Round(0, 0)]
        assert len(completion.tokens) == 9


class FirstChoice:
    """Takes the first token always: the tree of outcomes shrinks to the coin flips."""

    def __init__(self, inner: Randomness) -> None:
        self.flip = inner.flip

    def choice(self, probabilities: Tensor) -> int:
        return int(probabilities.argmax())


def test_the_page_is_a_page() -> None:
    assert len(inspect.getsource(speculative).splitlines()) <= 100


# A test that cannot fail proves nothing: the page with one fault each, by replacing its source.

FAULTS = {
    "accepts everything": ("randomness.flip(float(p[accepted, d] / q[accepted, d]))", "True"),
    "accepts a tenth too often": ("float(p[accepted, d] /", "float(1.1 * p[accepted, d] /"),
    "recovers from the target": ("residual(p[accepted], q[accepted])", "p[accepted]"),
    "bonus from the draft": ("law = p[accepted]\n", "law = q[-1] if drafts else p[-1]\n"),
    "recovers one row late": ("residual(p[accepted]", "residual(p[accepted + 1]"),
    "reads on after the EOS": ("for token in emitted:", "for token in emitted[-1:]:"),
}
P: Table = [[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.25, 0.5, 0.25]]] * 2 + [[[0.3, 0.6, 0.1]] * 3]
Q: Table = [[[0.2, 0.4, 0.4], [0.3, 0.4, 0.3], [0.6, 0.2, 0.2]]] * 2 + [[[0.2, 0.2, 0.6]] * 3]


def page_law(source: str) -> Law:
    page: dict[str, Callable[[Laws, Propose, Request, Randomness], Completion]] = {}
    exec(compile(source, "page", "exec"), page)
    request = Request(prompt=(0,), max_new_tokens=3, draft_tokens=2, eos=(2,))
    return output_law(lambda r: page["decode"](laws_of(P), draft_with(laws_of(Q)), request, r))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_page_has_another_law(fault: str) -> None:
    request = Request(prompt=(0,), max_new_tokens=3, draft_tokens=2, eos=(2,))
    source, expected = inspect.getsource(speculative), product_law(laws_of(P), request)
    right, wrong = FAULTS[fault]
    assert source.count(right) == 1
    assert distance(page_law(source), expected) < ACCURACY
    assert distance(page_law(source.replace(right, wrong)), expected) > 1e-3
