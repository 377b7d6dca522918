"""The learned tilt: a law at any theta, fixed by the past, and what it learns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, observations
from torch import Tensor

from harness.stats.eprocess import EProcess
from harness.stats.rows import Rows
from harness.stats.simulated import contexts
from harness.stats.tilt import DRAFT, RIDGE, TARGET, Tilt

EVERY = len(TARGET) + len(DRAFT)


def drawn(law: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Context and token of ``count`` draws, each from a row of ``law`` [C, V] picked at random."""
    generator = torch.Generator().manual_seed(seed)
    where = torch.randint(len(law), (count,), generator=generator)
    return where, torch.multinomial(law[where], 1, generator=generator).squeeze(1)


def after(rows: Rows, where: Tensor, tokens: Tensor) -> Rows:
    names = ("p", "q", "previous", "replayed")
    laws = {name: getattr(rows, name) for name in names}
    return Rows(tokens=tokens, **{k: v if v is None else v[where] for k, v in laws.items()})


def tilted(rows: Rows, theta: Tensor) -> Tensor:
    """p exp(theta . f) / Z, feature by feature."""
    at = rows.everywhere
    exponent = sum(
        float(t) * f(at) for t, f in zip(theta, (*TARGET, *DRAFT)[: len(theta)], strict=True)
    )
    law = rows.p * torch.as_tensor(exponent).exp()
    return law / law.sum(-1, keepdim=True)


# --- a law ----------------------------------------------------------------------------------------


@examples(100)
@given(
    rows=observations(),
    theta=st.lists(st.integers(-12, 12), min_size=EVERY, max_size=EVERY),
    q=st.booleans(),
)
def test_it_is_a_law_at_any_theta(rows: Rows, theta: list[int], q: bool) -> None:
    tilt = Tilt(q)
    tilt.theta = torch.tensor(theta, dtype=torch.float64)[: len(tilt.features)]
    expected = tilted(rows, tilt.theta)
    none = replace(rows, q=rows.q if q else None, counts=torch.zeros_like(rows.p))
    ratios = tilt.log_ratios(none)
    law = rows.p * ratios.exp()
    assert law.sum(-1).tolist() == pytest.approx([1] * len(rows), abs=1e-9)
    torch.testing.assert_close(law, expected, rtol=1e-9, atol=1e-12)
    # Of no tokens it learns nothing.
    assert tilt.theta.tolist() == theta[: len(tilt.features)]


def test_it_starts_as_the_target() -> None:
    rows = contexts()
    where, tokens = drawn(rows.p, 50, 0)
    tilt = Tilt(q=True)
    assert tilt.log_ratios(after(rows, where, tokens)).tolist() == pytest.approx([0] * 50)
    assert tilt.theta.abs().max() > 0
    assert tilt.log_ratios(after(rows, where, tokens)).abs().max() > 0


def test_without_the_draft_it_has_the_features_of_the_target() -> None:
    assert len(Tilt(q=False).features) == len(TARGET)
    rows = contexts()
    where, tokens = drawn(rows.p, 20, 0)
    Tilt(q=False).log_ratios(Rows(rows.p[where], tokens))  # and asks for no other law


def test_an_impossible_token_pays_nothing_and_is_no_nan() -> None:
    rows = Rows.of(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), [1, 1], torch.tensor([[0.0, 1.0]] * 2))
    tilt = Tilt(q=True)
    for _ in range(3):
        ratios = tilt.log_ratios(rows)
        assert ratios[0] == 0
        assert ratios.isfinite().all()
        assert tilt.theta.isfinite().all()


# --- the past alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 3, 4, 5, 37, 99])
def test_a_bet_does_not_depend_on_what_comes_after(first: int) -> None:
    """In one batch, however it is cut inside."""
    rows = contexts()
    where, tokens = drawn(rows.q, 120, 1)
    changed = tokens.clone()
    changed[first:] = (tokens[first:] + 17) % rows.p.shape[1]

    def ratios(emitted: Tensor) -> Tensor:
        process = EProcess([], q=True, alpha=0.01)
        return process.update(after(rows, where, emitted)).squeeze(1)

    one, other = ratios(tokens), ratios(changed)
    assert one[:first].tolist() == other[:first].tolist()
    assert one.tolist() != other.tolist()


def test_nor_on_the_token_itself() -> None:
    """The ratio of a token is an entry of a row that is fixed before: they sum to a law."""
    rows = contexts()
    where, tokens = drawn(rows.q, 30, 2)
    p = rows.p[where[-1]]
    mass = 0.0
    for token in range(len(p)):
        process = EProcess([], q=True, alpha=0.01)
        process.update(after(rows, where[:-1], tokens[:-1]))
        ratio = process.update(after(rows, where[-1:], torch.tensor([token])))
        mass += float(p[token] * ratio.exp())
    assert mass == pytest.approx(1, abs=1e-9)


# --- what it learns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "theta",
    [
        [0.0] * EVERY,
        [0.0, 0.7] + [0.0] * (EVERY - 2),  # the likeliest token too often
        [0.0] * len(TARGET) + [1.5],  # towards the draft
        [(0.5, -0.5, 0, 0.4, 0.8)[i % 5] for i in range(EVERY)],
    ],
    ids=["none", "best", "draft", "mixed"],
)
def test_it_finds_a_true_tilt(theta: list[float]) -> None:
    """In nats per token: what is lost against the true law is little of what there is to win."""
    rows = contexts()
    true = tilted(rows, torch.tensor(theta, dtype=torch.float64))
    where, tokens = drawn(true, 40_000, 3)
    tilt = Tilt(q=True)
    for start in range(0, 40_000, 1000):
        cut = slice(start, start + 1000)
        tilt.log_ratios(after(rows, where[cut], tokens[cut]))
    found = tilted(rows, tilt.theta)

    def divergence(law: Tensor) -> float:
        return float((true * (true / law).log()).sum(-1).mean())

    # The likelihood of F fitted numbers is off by F / 2n nats a token (Wilks).
    assert divergence(found) < 4 * EVERY / (2 * 40_000)
    if any(theta):
        assert divergence(rows.p) > 0.01
        assert divergence(found) < divergence(rows.p) / 20


def test_a_sudden_change_is_no_overflow() -> None:
    """Where all mass is on one token the curvature is none, and a step may go anywhere."""
    n = 20_000
    p, q = torch.tensor([[0.999, 0.001]]), torch.tensor([[0.001, 0.999]])
    tilt = Tilt(q=True)
    for tokens in ([1] * 4, [1] * n, [0] * n, [0] * n, [1] * n, [1] * n):
        ratios = tilt.log_ratios(
            Rows.of(p.expand(len(tokens), 2), tokens, q.expand(len(tokens), 2))
        )
        assert ratios.isfinite().all()
        assert tilt.theta.isfinite().all()
        assert tilt.curvature.isfinite().all()


# --- tokens that are counted ----------------------------------------------------------------------


@pytest.mark.parametrize("q", [True, False])
def test_counted_tokens_are_the_same_as_one_by_one(q: bool) -> None:
    rows = contexts()
    rows = rows if q else replace(rows, q=None)
    counted, listed = Tilt(q), Tilt(q)
    for seed in range(3):
        where, tokens = drawn(contexts().q, 500, seed)
        counts = torch.zeros_like(rows.p)
        counts.index_put_((where, tokens), torch.ones(500, dtype=torch.float64), accumulate=True)
        table = counted.log_ratios(replace(rows, counts=counts))
        ratios = listed.log_ratios(after(rows, where, tokens))
        torch.testing.assert_close(table[where, tokens], ratios, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(counted.theta, listed.theta, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(counted.curvature, listed.curvature, rtol=1e-9, atol=1e-9)


def test_curvature_by_hand() -> None:
    """Of one context: the ridge, and the covariance of the features under the target."""
    rows = Rows.of(torch.tensor([[0.5, 0.3, 0.2]]), [2])
    f = torch.stack([feature(rows.everywhere)[0] for feature in TARGET])
    mean = f @ rows.p[0]
    covariance = (f * rows.p[0]) @ f.T - mean[:, None] * mean[None]
    tilt = Tilt(q=False)
    tilt.log_ratios(rows)
    expected = covariance + RIDGE * torch.eye(len(TARGET), dtype=torch.float64)
    torch.testing.assert_close(tilt.curvature, expected)
    torch.testing.assert_close(tilt.theta, torch.linalg.solve(expected, f[:, 2] - mean))


# --- saved and continued --------------------------------------------------------------------------


def test_it_continues_from_a_saved_state() -> None:
    rows = contexts()
    where, tokens = drawn(rows.q, 200, 5)
    batches = [after(rows, where[i : i + 20], tokens[i : i + 20]) for i in range(0, 200, 20)]
    whole = Tilt(q=True)
    expected = [whole.log_ratios(batch).tolist() for batch in batches]
    found, saved = [], Tilt(q=True).state()
    for batch in batches:
        tilt = Tilt(q=True)
        tilt.resume(json.loads(json.dumps(saved), parse_constant=pytest.fail))
        found.append(tilt.log_ratios(batch).tolist())
        saved = tilt.state()
    assert found == expected
    assert saved == whole.state()


def test_a_state_of_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match=f"a state of {len(TARGET)} features, this tilt has"):
        Tilt(q=True).resume(Tilt(q=False).state())
