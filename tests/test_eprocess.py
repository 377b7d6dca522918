"""The e-process: by hand, exactly by enumeration, in batches, and with impossible tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from strategies import examples, tables
from torch import Tensor
from wealth import BARE, DRAFT, FLAT, HALF, ONLY_BEST, P, Q, binary, border, cut, process, simulated

from harness.contract import Request, Sampling
from harness.stats.eprocess import EProcess
from harness.stats.experts import NAMED, Expert, log_ratios, of_sampling
from harness.stats.rows import Rows
from harness.stats.simulated import contexts
from reference_impl import sampling

# --- by hand ------------------------------------------------------------------------------------


def test_wealth_is_the_product_of_ratios() -> None:
    """(.6, .4) against (.8, .2): 3/4 for token 0, 2 for token 1."""
    bets = process(HALF)
    ratios = bets.update(binary([0, 1, 1]))
    assert ratios.exp().flatten().tolist() == pytest.approx([0.75, 2, 2])
    decision = bets.decision()
    assert math.exp(bets.log_wealth) == pytest.approx(3)
    assert math.exp(decision.log_wealth) == pytest.approx(3)
    assert math.exp(decision.expert_log_wealth) == pytest.approx(3)
    assert (decision.tokens, decision.rejected, decision.crossed_at) == (3, False, None)
    assert (decision.expert, decision.lead) == (HALF, math.inf)


def test_the_mixture_is_the_mean_over_families() -> None:
    """After a token 1: 2 and 2.5 and 3, the first two of one family."""
    half = replace(FLAT, family="leak")
    bets = process(HALF, half, DRAFT)
    bets.update(binary([1]))
    assert bets.log_wealths.exp().tolist() == pytest.approx([2, 2.5, 3])
    assert math.exp(bets.log_wealth) == pytest.approx((2.25 + 3) / 2)
    decision = bets.decision()
    assert decision.expert is DRAFT
    assert math.exp(decision.lead) == pytest.approx(3 / 2.5)


def test_the_decision_keeps_the_largest_wealth() -> None:
    """One may stop when one likes: what was reached once is not lost again."""
    bets = process(DRAFT, alpha=0.2)
    bets.update(binary([1, 1]))  # 9
    bets.update(binary([0, 0, 0, 0]))  # 9 / 16
    assert math.exp(bets.log_wealth) == pytest.approx(9 / 16)
    decision = bets.decision()
    assert math.exp(decision.log_wealth) == pytest.approx(9)
    assert decision.rejected
    assert decision.crossed_at == 2
    assert math.exp(decision.expert_log_wealth) == pytest.approx(9 / 16)


def test_it_never_lost_more_than_nothing() -> None:
    """The largest wealth is at least that of the start."""
    bets = process(DRAFT)
    bets.update(binary([0]))
    assert bets.decision().log_wealth == 0


@pytest.mark.parametrize("batch", [1, 3, 5, 50])
def test_crossed_at_is_the_first_crossing(batch: int) -> None:
    """3 for a token 1, 1/2 for a token 0, and it takes 20: token by token, in batches or not."""
    tokens = [1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    path = list(itertools.accumulate((3 if t else 0.5 for t in tokens), lambda a, b: a * b))
    first = 1 + next(i for i, wealth in enumerate(path) if wealth >= 20)
    assert first < len(tokens)
    bets = process(DRAFT, alpha=1 / 20)
    for i in range(0, len(tokens), batch):
        bets.update(binary(tokens[i : i + batch]))
        assert bets.crossed_at == (first if i + batch >= first else None)


def test_it_is_the_mixture_that_crosses() -> None:
    """Which is more than what any single expert has by itself, times its weight."""
    bets = process(HALF, DRAFT, alpha=1 / 2.4)
    bets.update(binary([0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0]))
    path = [0.75**2 * 2**t / 2 + 0.5**2 * 3**t / 2 for t in range(1, 5)]
    first = next(t for t, wealth in enumerate(path, 1) if wealth >= 2.4)
    assert bets.crossed_at == 2 + first
    assert math.exp(bets.decision().log_wealth) == pytest.approx(max(path))


def test_no_overflow() -> None:
    """1e5 tokens that are 600 times likelier under the draft: e^600,000 and more, and back."""
    n = 100_000
    p, q = torch.tensor([[0.999, 0.001]]), torch.tensor([[0.001, 0.999]])
    gross = Rows.of(p.expand(n, 2), [1] * n, q.expand(n, 2))
    bets = process(*BARE, ONLY_BEST, tilt=True, alpha=1e-6)
    bets.update(gross)
    decision = bets.decision()
    assert 6e5 < decision.log_wealth < math.inf
    assert decision.crossed_at is not None
    assert decision.crossed_at < 10
    assert bets.log_wealths[bets.experts.index(ONLY_BEST)] == -math.inf
    assert not bets.log_wealths.isnan().any()
    for _ in range(2):  # and what is ruled out stays out, without a NaN
        bets.update(Rows.of(p.expand(n, 2), [0] * n, q.expand(n, 2)))
        assert not math.isnan(bets.log_wealth)
        assert not bets.log_wealths.isnan().any()


# --- what it is under the target's law, exactly --------------------------------------------------

VOCAB, LENGTH = 3, 3


def laws_by_prefix(seed: int, vocab: int = VOCAB) -> Callable[[tuple[int, ...]], dict[str, Tensor]]:
    """Scores, p and q after any prefix: at random, the same each time."""
    request = Request(prompt=(0,), max_new_tokens=1, sampling=Sampling(temperature=0.8))
    parameters = sampling.Parameters.of([request], vocab)

    def laws(prefix: tuple[int, ...]) -> dict[str, Tensor]:
        number = sum((1 + token) * (vocab + 1) ** i for i, token in enumerate(prefix))
        generator = torch.Generator().manual_seed(1000 * seed + number)
        drawn = 1.5 * torch.randn(2, 1, vocab, dtype=torch.float64, generator=generator)
        p = sampling.normalise(drawn[0], parameters)
        return {"p": p, "q": drawn[1].softmax(-1), "scores": drawn[0]}

    return laws


@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_wealth_is_one_at_every_time(seed: int) -> None:
    """Sum over all sequences of probability times wealth: all experts, the tilt and the mixture."""
    laws = laws_by_prefix(seed)
    settings = Sampling(temperature=0.8)
    parameters = sampling.Parameters.of(
        [Request(prompt=(0,), max_new_tokens=1, sampling=settings)], VOCAB
    )
    named = (*NAMED, *of_sampling(settings))
    mixture = torch.zeros(LENGTH, dtype=torch.float64)
    each = torch.zeros(LENGTH, len(named) + 1, dtype=torch.float64)
    learned = torch.zeros(LENGTH)
    for sequence in itertools.product(range(VOCAB), repeat=LENGTH):
        bets = EProcess(named, q=True, alpha=0.01)
        probability, previous = 1.0, laws(())["p"]
        for t, token in enumerate(sequence):
            now = laws(sequence[:t])
            rows = Rows(
                **now,
                tokens=torch.tensor([token]),
                previous=previous,
                replayed=torch.tensor([t % VOCAB]),
                parameters=parameters,
            )
            bets.update(rows)
            previous = now["p"]
            probability *= float(now["p"][0, token])
            # Every continuation of a prefix has its wealth in it: weighted, they make one.
            weight = probability / VOCAB ** (LENGTH - 1 - t)
            mixture[t] += weight * math.exp(bets.log_wealth)
            each[t] += weight * bets.log_wealths.exp()
            learned[t] += bets.log_wealths[-1].abs()
    assert mixture.tolist() == pytest.approx([1] * LENGTH, abs=1e-9)
    assert each.flatten().tolist() == pytest.approx([1] * each.numel(), abs=1e-9)
    assert learned[1:].min() > 0.01  # the tilt does take part


@examples(40)
@given(laws=tables())
def test_with_impossible_tokens_it_is_one_at_the_most(laws: tuple[Tensor, Tensor]) -> None:
    p, q = laws[0][:1], laws[1][:1]
    mean = 0.0
    for token in range(p.shape[1]):
        bets = process(*BARE, tilt=True)
        bets.update(Rows(p, torch.tensor([token]), q))
        mean += float(p[0, token]) * math.exp(bets.log_wealth)
        assert bets.impossible == int(p[0, token] == 0)
    assert mean <= 1 + 1e-9


@pytest.mark.parametrize(("alpha", "tilt"), [(0.5, False), (0.2, False), (0.1, False), (0.2, True)])
def test_it_crosses_with_probability_alpha_at_the_most(alpha: float, tilt: bool) -> None:
    """Ville: over all binary sequences, looked at after every token."""
    laws, length = laws_by_prefix(5, 2), 7 if tilt else 9
    crossed = 0.0
    for sequence in itertools.product(range(2), repeat=length):
        seen = [laws(sequence[:t]) for t in range(length)]
        p, q = (torch.cat([law[name] for law in seen]) for name in ("p", "q"))
        bets = process(HALF, FLAT, DRAFT, tilt=tilt, alpha=alpha)
        bets.update(Rows(p, torch.tensor(sequence), q))
        assert (bets.crossed_at is not None) == (bets.largest >= -math.log(alpha))
        if bets.crossed_at is not None:
            crossed += math.prod(float(p[t, token]) for t, token in enumerate(sequence))
    assert 0.05 * alpha < crossed <= alpha


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 60])
def test_batches_do_not_matter_to_fixed_experts(size: int) -> None:
    rows = simulated(60)
    rows = replace(rows, groups={"half": torch.arange(60) // 30})
    whole, parts = process(*NAMED), process(*NAMED)
    whole.update(rows)
    ratios = [parts.update(cut(rows, i, i + size)) for i in range(0, 60, size)]
    torch.testing.assert_close(torch.cat(ratios), log_ratios(NAMED, rows.here))
    torch.testing.assert_close(parts.log_wealths, whole.log_wealths)
    assert (parts.tokens, parts.crossed_at) == (whole.tokens, whole.crossed_at)
    assert parts.largest == pytest.approx(whole.largest)
    assert parts.decision().expert is whole.decision().expert
    torch.testing.assert_close(parts.groups, whole.groups)


def test_counted_tokens_are_worth_what_they_are_one_by_one() -> None:
    rows = contexts()
    listed = simulated(400, seed=3)
    where = torch.cdist(listed.p, rows.p).argmin(1)
    counts = torch.zeros_like(rows.p)
    assert listed.tokens is not None
    ones = torch.ones(400, dtype=torch.float64)
    counts.index_put_((where, listed.tokens), ones, accumulate=True)
    one, other = process(*NAMED), process(*NAMED)
    for _ in range(2):  # the second time from the table that it keeps
        one.update(listed)
        other.update(replace(rows, counts=counts))
    torch.testing.assert_close(one.log_wealths, other.log_wealths)
    assert one.tokens == other.tokens == 800
    assert other.crossed_at == 400
    assert one.decision().expert is other.decision().expert


def test_counted_tokens_of_other_contexts() -> None:
    """The table of log ratios that is kept is that of the contexts at hand."""
    counts = torch.tensor([[1.0, 2.0]])
    bets = process(HALF)
    for p in ([P], [Q], [P]):
        bets.update(Rows(torch.tensor(p).double(), q=torch.tensor([Q]).double(), counts=counts))
    assert math.exp(bets.log_wealth) == pytest.approx((0.75 * 2 * 2) ** 2)


def test_counted_impossible_tokens_are_proof() -> None:
    """And name what allows them, as one by one."""
    p, q = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    counts = torch.tensor([[3.0, 2.0]])
    bets = process(ONLY_BEST, DRAFT)
    bets.update(Rows(p.double(), q=q.double(), counts=counts))
    decision = bets.decision()
    assert decision.rejected
    assert (decision.impossible, decision.tokens, decision.expert) == (2, 5, DRAFT)


# --- impossible tokens ----------------------------------------------------------------------------


def test_an_impossible_token_is_proof_and_names_who_allows_it() -> None:
    bets = process(*BARE, ONLY_BEST, tilt=True, alpha=1e-9)
    bets.update(border([0] * 50))
    assert not bets.decision().rejected
    # Fifty of the likeliest token: whoever expects it leads, but it does not allow token 1.
    bets.update(border([1], [False]))
    decision = bets.decision()
    assert decision.rejected
    assert (decision.impossible, bets.near, decision.tokens) == (1, 0, 51)
    assert float(decision.expert.law(border([1]).here)) > 0
    assert decision.log_wealth < 1  # it pays nothing
    assert decision.crossed_at is None


def test_a_token_near_the_border_proves_nothing() -> None:
    bets = process(*BARE, tilt=True)
    before = bets.log_wealths.clone()
    bets.update(border([1, 1], [True, True]))
    assert (bets.impossible, bets.near, bets.tokens) == (0, 2, 2)
    assert not bets.decision().rejected
    assert bets.log_wealths.tolist() == before.tolist()
    assert bets.explained.tolist() == [0] * len(bets.experts)
    bets.update(border([1, 1, 0], [True, False, False]))
    assert (bets.impossible, bets.near) == (1, 3)


def test_the_one_that_allows_most_of_them_is_named() -> None:
    """Three impossible tokens: the draft allows all, the other one only token 2."""
    p = torch.tensor([[1.0, 0.0, 0.0]] * 3)
    q = torch.tensor([[0.4, 0.3, 0.3]] * 3)
    third = Expert("third", "token 2", lambda at: at.of(torch.tensor([[0, 0, 1.0]] * 3).double()))
    bets = process(third, DRAFT)
    bets.update(Rows.of(p, [1, 2, 2], q))
    assert bets.explained.tolist() == [2, 3]
    assert bets.decision().expert is DRAFT
