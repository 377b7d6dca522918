"""Named faults: each law is what a page with that very fault answers, enumerated."""

from __future__ import annotations

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
from harness.contract import Completion
from harness.stats import faults
from harness.stats.faults import NAMED, on_tables
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


def sharpened(p: Tensor, q: Tensor, randomness: Randomness) -> int:
    return int(p.argmax()) if randomness.flip(0.1) else randomness.choice(p)


STEPS = {
    "drafted tokens are accepted unverified": accept_all,
    "3 in 10 tokens come from the draft": leaky,
    "rejected tokens are drawn from the target instead of the residual": from_target,
    "over-acceptance by a factor of 1.1": lenient(1.1),
    "over-acceptance by a factor of 1.5": lenient(1.5),
    "1 in 10 tokens is the most likely one instead of a draw": sharpened,
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


@pytest.mark.parametrize("name", sorted(STEPS.keys() - {EFFECT_OF_ANY_DRAFT}))
@examples(30)
@given(laws=pairs_of_laws())
def test_no_fault_of_acceptance_shows_where_draft_and_target_agree(name: str, laws: Laws) -> None:
    """Which is why a check of sampled output needs another effect there."""
    p, _ = laws
    assert NAMED[name](p, p).tolist() == pytest.approx(p.tolist(), abs=1e-12)


@examples(30)
@given(laws=pairs_of_laws())
def test_what_does_not_depend_on_the_draft_shows_with_any(laws: Laws) -> None:
    p, q = laws
    fault = NAMED[EFFECT_OF_ANY_DRAFT]
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
