"""Rows of laws and tokens: bad input by name; a law is the same seen here and everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from hypothesis import given
from strategies import examples, observations, sampled_observations
from torch import Tensor

from harness.contract import Sampling
from harness.stats import faults
from harness.stats.experts import NAMED, Expert, log_ratios, of_sampling
from harness.stats.rows import Rows, checked

NAN, INF = float("nan"), float("inf")
P, Q = torch.tensor([[0.8, 0.2], [0.5, 0.5]]), torch.tensor([[0.4, 0.6], [0.5, 0.5]])
BARE = {  # those that no expert has as they are
    "nothing": partial(faults.leak, rate=0.0),
    "accept all": partial(faults.leak, rate=1.0),
    "factor of 1": partial(faults.over_accept, factor=1.0),
    "factor of 8": partial(faults.over_accept, factor=8.0),
    "always flat": partial(faults.flatten, rate=1.0),
    "always the best": partial(faults.sharpen, rate=1.0),
    "always again": partial(faults.replay, rate=1.0),
    "the residual": lambda at: at.residual,
}
LAWS = {**BARE, **{e.says: e.law for e in NAMED}}


def close(one: Tensor, other: Tensor) -> None:
    """Equal but for the last bits: a vectorised power is another than a single one."""
    torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


# --- what makes no sense ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "words"),
    [
        ([[0.5, NAN]], "probability of p is nan"),
        ([[0.5, INF]], "probability of p is inf"),
        ([[0.5, -INF]], "probability of p is -inf"),
        ([[1.25, -0.25]], r"probability of p is -0\.25"),
        ([[1e308, 1e308]], r"probability of p is 1e\+308"),
        ([[0.5, 0.4]], r"row 0 of p sums to 0\.9, not 1"),
        ([[0.0, 0.0]], "row 0 of p sums to 0, not 1"),
    ],
)
def test_a_bad_probability_is_named(law: list[list[float]], words: str) -> None:
    law_ = torch.tensor(law, dtype=torch.float64)
    with pytest.raises(ValueError, match=words):
        Rows.of(law_, [0])
    with pytest.raises(ValueError, match=words.replace(" p ", " q ")):
        Rows.of(torch.tensor([[0.5, 0.5]]), [0], law_)


def test_the_row_that_does_not_sum_to_one_is_named() -> None:
    with pytest.raises(ValueError, match="row 2 of p sums to 2, not 1"):
        Rows.of(torch.tensor([[1.0], [1.0], [2.0]]), [0, 0, 0])


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([0, 2], r"token 2 is outside the vocabulary 0\.\.1"),
        ([-1, 0], r"token -1 is outside the vocabulary 0\.\.1"),
        ([0], r"\(1,\) tokens for laws \(2, 2\)"),
        ([], r"\(0,\) tokens for laws \(2, 2\)"),
        ([[0, 1]], r"\(1, 2\) tokens for laws \(2, 2\)"),
    ],
)
def test_bad_tokens_are_named(tokens: Sequence[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rows.of(P, tokens)


def test_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="an empty list of tokens"):
        Rows.of(torch.empty(0, 4), [])


def test_a_draft_of_another_vocabulary_is_refused() -> None:
    wider = torch.nn.functional.pad(Q, (0, 1))
    with pytest.raises(ValueError, match=r"\(2, 3\), the target's \(2, 2\): one vocabulary"):
        Rows.of(P, [0, 1], wider)


@pytest.mark.parametrize("shape", [(4,), (2, 0), (1, 2, 2)])
def test_a_table_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="law has shape"):
        checked(torch.zeros(shape))


def test_laws_are_normalised_in_float64() -> None:
    rows = Rows.of(torch.tensor([[0.5, 0.25, 0.25 + 5e-5]]), [0])
    assert rows.p.dtype is torch.float64
    assert float(rows.p.sum()) == pytest.approx(1, abs=1e-15)


# --- one law, two views -------------------------------------------------------------------------


def agree(rows: Rows, laws: dict[str, faults.Law]) -> None:
    """Each law: the whole row, gathered at the tokens, is what is seen at the tokens."""
    assert rows.tokens is not None
    for name, law in laws.items():
        whole, here = law(rows.everywhere), law(rows.here)
        assert whole.shape == rows.p.shape, name
        assert here.shape == (len(rows), 1), name
        close(here, whole.gather(1, rows.tokens.unsqueeze(1)))


@examples(150)
@given(rows=observations())
def test_a_law_is_the_same_here_and_everywhere(rows: Rows) -> None:
    agree(rows, LAWS)


@examples(100)
@given(sampled_observations())
def test_so_is_a_law_under_other_parameters(case: tuple[Sampling, Rows]) -> None:
    settings, rows = case
    agree(rows, {e.says: e.law for e in of_sampling(settings)})


@examples(60)
@given(rows=observations())
def test_so_are_log_ratios(rows: Rows) -> None:
    assert rows.tokens is not None
    whole, here = log_ratios(NAMED, rows.everywhere), log_ratios(NAMED, rows.here)
    assert whole.shape == (*rows.p.shape, len(NAMED))
    close(here, whole[torch.arange(len(rows)), rows.tokens])
    assert not here.isnan().any()


def test_no_experts_have_no_log_ratios() -> None:
    rows = Rows.of(P, [0, 1], Q)
    assert log_ratios([], rows.here).shape == (2, 0)
    assert log_ratios([], rows.everywhere).shape == (2, 2, 0)


def test_sums_by_hand() -> None:
    rows = Rows.of(P, [0, 1], Q)
    assert rows.kept().flatten().tolist() == pytest.approx([0.6, 1.0])
    assert rows.kept(1.5).flatten().tolist() == pytest.approx([0.4 + 0.3, 1.0])
    assert rows.left.flatten().tolist() == pytest.approx([0.4, 0.0])
    assert rows.best[0].tolist() == [0]
    # Where the draft leaves nothing of the target, what is recovered is the target.
    assert rows.everywhere.residual.tolist() == [[1, 0], [0.5, 0.5]]
    assert rows.here.log_p.flatten().tolist() == pytest.approx(P.double().log()[[0, 1], [0, 1]])


# --- sizes --------------------------------------------------------------------------------------


def test_a_vocabulary_of_one() -> None:
    one = torch.ones(3, 1)
    rows = Rows.of(one, [0, 0, 0], one, previous=one.double(), replayed=torch.tensor([-1, 0, 0]))
    agree(rows, LAWS)
    assert float(log_ratios(NAMED, rows.here).abs().max()) < 1e-15


def large() -> Rows:
    """150,000 tokens, a third of them impossible for the target; float32, as models give it."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(2, 150_000, generator=generator)
    q = (0.7 * scores + torch.randn(scores.shape, generator=generator)).softmax(-1)
    p = scores.index_fill(1, torch.arange(0, 150_000, 3), -INF).softmax(-1)
    tokens = [149_999, 1]
    previous = checked(p.roll(1, 0))
    return Rows.of(p, tokens, q, previous=previous, replayed=torch.tensor([-1, 7]))


def test_a_large_vocabulary() -> None:
    rows = large()
    agree(rows, LAWS)
    for expert in NAMED:
        law = expert.law(rows.everywhere)
        assert float(law.min()) >= 0, expert.says
        assert law.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-6), expert.says


def test_one_token() -> None:
    rows = Rows.of(P[:1], [1], Q[:1], previous=P[:1].double(), replayed=torch.tensor([1]))
    assert len(rows) == 1
    agree(rows, LAWS)


@examples(60)
@given(rows=observations())
def test_rows_do_not_depend_on_each_other(rows: Rows) -> None:
    """A part of the rows has the part of every law that needs p and q alone."""
    of_laws = [e for e in NAMED if e.needs <= {"q"}]
    whole = log_ratios(of_laws, rows.here)
    for i in range(len(rows)):
        close(log_ratios(of_laws, rows.part(i, i + 1).here), whole[i : i + 1])


def test_a_part_is_a_view() -> None:
    counts = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    rows = Rows(P.double(), q=Q.double(), counts=counts)
    part = rows.part(1, 5)  # beyond the end there is nothing
    assert (len(part), part.tokens) == (1, None)
    assert part.p.data_ptr() == rows.p[1:].data_ptr()
    assert part.q is not None
    assert part.q.tolist() == Q[1:].tolist()
    assert part.counts is not None
    assert part.counts.tolist() == [[0, 3]]
    assert Rows.of(P, [0, 1]).part(0, 1).q is None


def test_the_draft_is_asked_for_only_if_known() -> None:
    rows = Rows.of(P, [0, 1])
    without: list[Expert] = [e for e in NAMED if not e.needs]
    assert log_ratios(without, rows.here).shape == (2, len(without))
    with pytest.raises(AssertionError, match="the draft is not known"):
        _ = rows.here.q


def test_impossible_tokens_pay_nothing_either_way() -> None:
    rows = Rows.of(torch.tensor([[1.0, 0.0]]), [1], torch.tensor([[0.5, 0.5]]))
    paid: Tensor = log_ratios([e for e in NAMED if e.needs <= {"q"}], rows.here)
    assert (paid == 0).all()
