"""Named faults: each law is what a page with that very fault answers, enumerated."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from torch import Tensor

from harness.checks.distribution import EFFECT, EFFECT_OF_ANY_DRAFT
from harness.checks.exact_law import distributions, output_law
from harness.contract import Completion, Request, Sampling
from harness.stats import experts, faults
from harness.stats.faults import NAMED, Law, on_tables, with_parameters
from harness.stats.rows import Rows
from reference_impl import sampling
from reference_impl.randomness import Randomness
from reference_impl.speculative import residual

Laws = tuple[Tensor, Tensor]
Step = Callable[[Tensor, Tensor, Randomness], int]


@st.composite
def pairs_of_laws(draw: st.DrawFn) -> Laws:
    vocab = draw(st.integers(2, 5))
    p, q = (draw(distributions(vocab)) for _ in range(2))
    if draw(st.booleans()):
        q = p
    return torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)


def accept_all(p: Tensor, q: Tensor, randomness: Randomness) -> int:
    return randomness.choice(q)


def leaky(p: Tensor, q: Tensor, randomness: Randomness) -> int:
    return randomness.choice(q if randomness.flip(0.3) else p)


def from_target(p: Tensor, q: Tensor, randomness: Randomness) -> int:
    draft = randomness.choice(q)
    if randomness.flip(float(p[draft] / q[draft])):
        return draft
    return randomness.choice(p)


def lenient(factor: float) -> Step:
    def step(p: Tensor, q: Tensor, randomness: Randomness) -> int:
        draft = randomness.choice(q)
        if randomness.flip(factor * float(p[draft] / q[draft])):
            return draft
        return randomness.choice(residual(p, q))

    return step


def sharpened(rate: float) -> Step:
    def step(p: Tensor, q: Tensor, randomness: Randomness) -> int:
        return int(p.argmax()) if randomness.flip(rate) else randomness.choice(p)

    return step


STEPS = {
    "drafted tokens are accepted unverified": accept_all,
    "3 in 10 tokens come from the draft": leaky,
    "rejected tokens are drawn from the target instead of the residual": from_target,
    "over-acceptance by a factor of 1.1": lenient(1.1),
    "over-acceptance by a factor of 1.5": lenient(1.5),
    "1 in 10 tokens is the most likely one instead of a draw": sharpened(0.1),
    "3 in 10 tokens are the most likely one instead of a draw": sharpened(0.3),
}


def enumerated(step: Step, p: Tensor, q: Tensor) -> list[float]:
    """Law of one token of a decoder with this step."""
    law = output_law(lambda r: Completion(tokens=[step(p, q, r)], finish_reason="length"))
    return [law.get(((token,), "length"), 0.0) for token in range(len(p))]


@pytest.mark.parametrize("name", NAMED)
@examples(60)
@given(laws=pairs_of_laws())
def test_a_fault_has_the_law_of_the_step_that_has_it(name: str, laws: Laws) -> None:
    found = NAMED[name](*laws)
    assert found.min() >= 0
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)
    assert found.tolist() == pytest.approx(enumerated(STEPS[name], *laws), abs=1e-12)


SHARPENED = [name for name in STEPS if "the most likely one" in name]


@pytest.mark.parametrize("name", [name for name in STEPS if name not in SHARPENED])
@examples(30)
@given(laws=pairs_of_laws())
def test_no_fault_of_acceptance_shows_where_draft_and_target_agree(name: str, laws: Laws) -> None:
    """Which is why a check of sampled output needs another effect there."""
    p, _ = laws
    assert NAMED[name](p, p).tolist() == pytest.approx(p.tolist(), abs=1e-12)


@pytest.mark.parametrize("name", SHARPENED)
@examples(30)
@given(laws=pairs_of_laws())
def test_what_does_not_depend_on_the_draft_shows_with_any(name: str, laws: Laws) -> None:
    p, q = laws
    fault = NAMED[name]
    assert fault(p, p).tolist() == fault(p, q).tolist()
    assert (fault(p, p).tolist() == pytest.approx(p.tolist())) == (p.max() == 1)


@examples(60)
@given(laws=pairs_of_laws())
def test_without_a_fault_it_is_the_target(laws: Laws) -> None:
    p, q = laws
    none = (partial(faults.leak, rate=0.0), partial(faults.over_accept, factor=1.0))
    for law in (on_tables(fault)(p, q) for fault in none):
        assert law.tolist() == pytest.approx(p.tolist(), abs=1e-12)


def test_rows_are_independent() -> None:
    """They are applied to whole tables of laws at once."""
    p, q = torch.rand(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    for fault in NAMED.values():
        one_by_one = [[fault(p[i, j], q[i, j]) for j in range(4)] for i in range(3)]
        torch.testing.assert_close(fault(p, q), torch.stack([torch.stack(r) for r in one_by_one]))


def test_the_effects_that_set_the_sample_size_are_named() -> None:
    assert {EFFECT, EFFECT_OF_ANY_DRAFT} < NAMED.keys()


def test_by_hand() -> None:
    """p = (.8, .2), q = (.4, .6): .6 is kept as it is, .4 is rejected."""
    p, q = torch.tensor([0.8, 0.2]), torch.tensor([0.4, 0.6])

    def law(fault: Callable[..., Tensor], **of: float) -> list[float]:
        return on_tables(partial(fault, **of))(p, q).tolist()

    assert law(faults.resample_from_target) == pytest.approx([0.4 + 0.4 * 0.8, 0.2 + 0.4 * 0.2])
    assert law(faults.over_accept, factor=1.5) == pytest.approx([0.4 + 0.3, 0.3])
    assert law(faults.leak, rate=0.5) == pytest.approx([0.6, 0.4])


# --- the laws of the experts --------------------------------------------------------------------


def recovered(weights: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """A rejected draft is replaced by a draw from these weights."""

    def step(p: Tensor, q: Tensor, randomness: Randomness) -> int:
        draft = randomness.choice(q)
        if randomness.flip(float(p[draft] / q[draft])):
            return draft
        return randomness.choice(weights(p, q))

    return step


def proposed(drawn: Callable[[Tensor], Tensor], scale: float = 1.0) -> Step:
    """Drafts come from another law than the one they are judged by, ``scale`` times q."""

    def step(p: Tensor, q: Tensor, randomness: Randomness) -> int:
        draft = randomness.choice(drawn(q))
        judged = scale * q
        if randomness.flip(float(p[draft] / judged[draft])):
            return draft
        return randomness.choice(residual(p, judged))

    return step


def now_and_then(rate: float, law: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """A share of tokens follows another law, the rest the target's."""

    def step(p: Tensor, q: Tensor, randomness: Randomness) -> int:
        return randomness.choice(law(p, q) if randomness.flip(rate) else p)

    return step


def one_hot_argmax(law: Tensor) -> Tensor:
    return (torch.arange(len(law)) == law.argmax()).double()


LAWS: dict[str, tuple[Law, Step]] = {
    "leak": (partial(faults.leak, rate=0.4), now_and_then(0.4, lambda p, q: q)),
    "resample": (faults.resample_from_target, from_target),
    "over-accept": (partial(faults.over_accept, factor=2.0), lenient(2.0)),
    "abs": (faults.abs_residual, recovered(lambda p, q: (p - q).abs())),
    "softmax": (faults.softmax_residual, recovered(lambda p, q: (p - q).clamp(min=0).softmax(-1))),
    "argmax": (faults.argmax_residual, recovered(lambda p, q: one_hot_argmax(p - q))),
    "colder": (partial(faults.proposal_at, power=2.0), proposed(lambda q: q * q)),
    "hotter": (partial(faults.proposal_at, power=0.5), proposed(lambda q: q.sqrt())),
    "best draft": (faults.proposal_argmax, proposed(one_hot_argmax)),
    "half": (partial(faults.unnormalised_proposal, scale=0.5), proposed(lambda q: q, 0.5)),
    "three": (partial(faults.unnormalised_proposal, scale=3.0), proposed(lambda q: q, 3.0)),
    "temperature": (
        partial(faults.temperature, power=3.0),
        lambda p, q, randomness: randomness.choice(p * p * p),
    ),
    "sharpen": (
        partial(faults.sharpen, rate=0.3),
        now_and_then(0.3, lambda p, q: one_hot_argmax(p)),
    ),
    "flatten": (
        partial(faults.flatten, rate=0.3),
        now_and_then(0.3, lambda p, q: (p > 0).double()),
    ),
}


@pytest.mark.parametrize("name", LAWS)
@examples(50)
@given(laws=pairs_of_laws())
def test_a_law_is_that_of_the_step_that_has_the_fault(name: str, laws: Laws) -> None:
    law, step = LAWS[name]
    found = on_tables(law)(*laws)
    assert found.min() >= 0
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)
    assert found.tolist() == pytest.approx(enumerated(step, *laws), abs=1e-12)


def test_every_expert_that_knows_p_and_q_alone_has_such_a_step() -> None:
    def bare(law: Law) -> Callable[..., Tensor]:
        return law.func if isinstance(law, partial) else law

    stepped = {bare(law) for law, _ in LAWS.values()}
    assert stepped == {bare(e.law) for e in experts.NAMED if e.needs <= {"q"}}


@examples(50)
@given(laws=pairs_of_laws(), rate=st.sampled_from([0.0, 0.1, 0.9, 1.0]))
def test_a_shifted_row_is_that_of_the_token_before(laws: Laws, rate: float) -> None:
    p, previous = laws
    found = faults.shifted(Rows(p.view(1, -1), previous=previous.view(1, -1)).everywhere, rate)
    expected = enumerated(now_and_then(rate, lambda p, q: q), *laws)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-12)


@examples(50)
@given(laws=pairs_of_laws(), rate=st.sampled_from([0.0, 0.1, 0.9, 1.0]), data=st.data())
def test_a_replay_is_of_the_earlier_answer(laws: Laws, rate: float, data: st.DataObject) -> None:
    p, q = laws
    said = data.draw(st.integers(-1, len(p) - 1))
    again = p if said < 0 else (torch.arange(len(p)) == said).double()
    found = faults.replay(Rows(p.view(1, -1), replayed=torch.tensor([said])).everywhere, rate)
    assert found.dtype is torch.float64
    expected = enumerated(now_and_then(rate, lambda p, q: again), p, q)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_residuals_by_hand() -> None:
    """p = (.5, .3, .2), q = (.1, .3, .6): .6 is kept, and p - q = (.4, 0, -.4)."""
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.1, 0.3, 0.6]).double()
    e = math.exp(0.4)
    recovered_ = {
        faults.abs_residual: [0.5, 0, 0.5],
        faults.softmax_residual: [e / (e + 2), 1 / (e + 2), 1 / (e + 2)],
        faults.argmax_residual: [1, 0, 0],
    }
    for law, wrong in recovered_.items():
        expected = [k + 0.4 * w for k, w in zip([0.1, 0.3, 0.2], wrong, strict=True)]
        assert on_tables(law)(p, q).tolist() == pytest.approx(expected)


def test_proposals_by_hand() -> None:
    """p = (.8, .2), q = (.4, .6). The draft's argmax is kept with probability 1/3."""
    p, q = torch.tensor([0.8, 0.2]).double(), torch.tensor([0.4, 0.6]).double()
    assert on_tables(faults.proposal_argmax)(p, q).tolist() == pytest.approx([2 / 3, 1 / 3])
    colder = on_tables(partial(faults.proposal_at, power=2.0))(p, q)  # drawn from (4, 9) / 13
    assert colder.tolist() == pytest.approx([4 / 13 + 9 / 13 * 2 / 3, 9 / 13 / 3])
    # Judged by (.8, 1.2): kept min(q, p / 2) = (.4, .1), and nothing but p is left to recover.
    doubled = on_tables(partial(faults.unnormalised_proposal, scale=2.0))(p, q)
    assert doubled.tolist() == pytest.approx([0.4 + 0.5 * 0.8, 0.1 + 0.5 * 0.2])


# --- other sampling parameters than the request's -----------------------------------------------

RAW = torch.tensor([0.35, 0.25, 0.20, 0.06, 0.055, 0.045, 0.04], dtype=torch.float64)
HOT = RAW.sqrt() / RAW.sqrt().sum()  # at temperature 2


def under(change: faults.Change, **settings: float) -> list[float]:
    """The law that ``change`` makes of a request's, whose raw law is ``RAW``."""
    request = Request(prompt=(0,), max_new_tokens=1, sampling=Sampling(**settings))
    parameters = sampling.Parameters.of([request], len(RAW))
    scores = RAW.log().unsqueeze(0)
    rows = Rows(sampling.normalise(scores, parameters), scores=scores, parameters=parameters)
    return faults.reparametrised(rows.everywhere, change)[0].tolist()


def first(count: int, law: Tensor = RAW) -> object:
    """The likeliest ``count`` tokens of a law."""
    kept = law * (torch.arange(len(law)) < count)
    return pytest.approx((kept / kept.sum()).tolist(), abs=1e-12)


def test_the_order_of_the_filters() -> None:
    """top_k 4 leaves .86, of which three tokens are .93; of everything, four are .86."""
    assert under(with_parameters(), temperature=1.0, top_k=4, top_p=0.82) == first(3)
    assert under(faults.top_p_of_everything, temperature=1.0, top_k=4, top_p=0.82) == first(4)
    # Where the nucleus of everything is larger than k, k still holds.
    assert under(faults.top_p_of_everything, temperature=1.0, top_k=2, top_p=0.82) == first(2)


def test_filters_before_the_temperature() -> None:
    """Four tokens are .86 of the raw law, but .73 of it at temperature 2, where five are .83."""
    assert under(with_parameters(), temperature=2.0, top_p=0.82) == first(5, HOT)
    assert under(faults.filters_first, temperature=2.0, top_p=0.82) == first(4, HOT)
    # min_p likewise: .06 is under .2 of .35, and its root is over .2 of the other's.
    assert under(with_parameters(), temperature=2.0, min_p=0.2) == first(7, HOT)
    assert under(faults.filters_first, temperature=2.0, min_p=0.2) == first(3, HOT)


def test_filters_ignored() -> None:
    for filters in ({"top_k": 2}, {"top_p": 0.3}, {"min_p": 0.9}):
        assert under(faults.unfiltered, temperature=2.0, **filters) == first(7, HOT)
        assert under(faults.unfiltered, temperature=1.0, **filters) == first(7)


def test_other_values_of_single_parameters() -> None:
    assert under(with_parameters(temperature=1.0), temperature=2.0) == first(7)
    fourth_root = RAW**0.25
    twice = under(with_parameters(temperature=torch.square), temperature=2.0)
    assert twice == pytest.approx((fourth_root / fourth_root.sum()).tolist())

    larger, smaller = with_parameters(top_k=lambda k: k + 1), with_parameters(top_k=lambda k: k - 1)
    assert under(larger, temperature=1.0, top_k=2) == first(3)
    assert under(smaller, temperature=1.0, top_k=2) == first(1)
    assert under(smaller, temperature=1.0, top_k=1) == first(1)  # one token is always left
    assert under(larger, temperature=1.0, top_k=7) == first(7)
    assert under(larger, temperature=1.0, top_k=100) == first(7)

    both = {"temperature": 1.0, "top_k": 4, "top_p": 0.5}
    assert under(with_parameters(), **both) == first(2)
    assert under(with_parameters(top_p=1.0), **both) == first(4)
    assert under(with_parameters(top_p=0.75), **both) == first(3)
    assert under(with_parameters(top_k=float(2**31)), **both) == first(2)
    assert under(with_parameters(top_k=float(2**31), top_p=1.0), **both) == first(7)


def test_other_parameters_give_laws_that_sum_to_one_exactly() -> None:
    """In float32 they do up to 1e-7, which an e-process of a million tokens would feel."""
    request = Request(prompt=(0,), max_new_tokens=1, sampling=Sampling(temperature=0.7, top_k=900))
    parameters = sampling.Parameters.of([request] * 4, 1000)
    scores = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    rows = Rows(sampling.normalise(scores, parameters), scores=scores, parameters=parameters)
    for expert in experts.of_sampling(request.sampling):
        sums = expert.law(rows.everywhere).sum(-1)
        assert sums.tolist() == pytest.approx([1] * 4, abs=1e-14), expert.says
