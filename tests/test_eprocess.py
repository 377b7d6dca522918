"""The e-process: by hand, exactly by enumeration, and what slack, states and labels do to it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from strategies import examples, observations, tables
from torch import Tensor

from harness.contract import Request, Sampling
from harness.stats import faults
from harness.stats.eprocess import LEAD, TILT, Decision, EProcess
from harness.stats.experts import NAMED, Expert, log_ratios, of_sampling
from harness.stats.rows import Rows
from harness.stats.simulated import contexts
from reference_impl import sampling

NAN = float("nan")
P, Q = [0.8, 0.2], [0.4, 0.6]
HALF = Expert("leak", "half", lambda at: faults.leak(at, 0.5), frozenset({"q"}))  # (.6, .4)
FLAT = Expert("flat", "any", lambda at: faults.flatten(at, 1.0))  # (.5, .5)
DRAFT = Expert("draft", "all", lambda at: faults.leak(at, 1.0), frozenset({"q"}))
ONLY_BEST = Expert("best", "the likeliest", lambda at: faults.sharpen(at, 1.0))
BARE = [e for e in NAMED if e.needs <= {"q"}]


def binary(tokens: Sequence[int], **more: Any) -> Rows:
    """These tokens, each after the laws ``P`` and ``Q``."""
    n = len(tokens)
    return Rows.of(torch.tensor([P] * n), tokens, torch.tensor([Q] * n), **more)


def process(*experts: Expert, tilt: bool = False, alpha: float = 0.01, q: bool = True) -> EProcess:
    return EProcess(experts, q=q, tilt=tilt, alpha=alpha)


def simulated(count: int, seed: int = 0) -> Rows:
    """Tokens from the draft after contexts of a larger vocabulary, with all that experts need."""
    rows = contexts()
    generator = torch.Generator().manual_seed(seed)
    where = torch.randint(len(rows), (count,), generator=generator)
    assert rows.q is not None
    assert rows.previous is not None
    assert rows.replayed is not None
    return Rows(
        rows.p[where],
        torch.multinomial(rows.q[where], 1, generator=generator).squeeze(1),
        rows.q[where],
        previous=rows.previous[where],
        replayed=rows.replayed[where],
    )


def cut(rows: Rows, first: int, last: int) -> Rows:
    """Some of the rows with all that there is about them."""
    picked = {
        name: None if value is None else value[first:last]
        for name in ("p", "tokens", "q", "previous", "replayed", "own_logprobs", "near")
        for value in [getattr(rows, name)]
    }
    groups = {name: labels[first:last] for name, labels in rows.groups.items()}
    return Rows(**picked, groups=groups)


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


def border(tokens: Sequence[int], near: Sequence[bool] | None = None) -> Rows:
    """The target allows token 0 alone, the draft both."""
    n = len(tokens)
    more = {} if near is None else {"near": torch.tensor(near)}
    return Rows.of(torch.tensor([[1.0, 0.0]] * n), tokens, torch.tensor([[0.5, 0.5]] * n), **more)


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


# --- slack ----------------------------------------------------------------------------------------


def own(rows: Rows, off: float | Tensor) -> Rows:
    """The decoder's own log probabilities are the oracle's, and ``off`` more."""
    return replace(rows, own_logprobs=rows.here.log_p.squeeze(1) + off)


def test_log_probabilities_that_are_the_oracles_change_nothing() -> None:
    rows = simulated(40)
    plain, believed = process(*NAMED), process(*NAMED)
    plain.update(rows)
    believed.update(own(rows, 0.0), slack=0.3)
    assert believed.log_wealths.tolist() == plain.log_wealths.tolist()


def test_up_to_the_slack_they_are_believed() -> None:
    """The ratio is then against them exactly."""
    rows = simulated(40)
    off = 0.3 * torch.linspace(-1, 1, 40, dtype=torch.float64)
    bets = process(*NAMED)
    ratios = bets.update(own(rows, off), slack=0.3)
    logs = torch.cat([e.law(rows.here) for e in NAMED], 1).log()
    expected = (logs - (rows.here.log_p + off.unsqueeze(1))).sum(0)
    torch.testing.assert_close(bets.log_wealths, expected)
    torch.testing.assert_close(ratios, log_ratios(NAMED, rows.here))  # before slack
    # Without slack they are not looked at.
    bare, plain = process(*NAMED), process(*NAMED)
    bare.update(own(rows, off))
    plain.update(rows)
    assert bare.log_wealths.tolist() == plain.log_wealths.tolist()


@pytest.mark.parametrize("off", [5.0, -5.0, math.inf, -math.inf])
def test_beyond_the_slack_they_are_believed_no_further(off: float) -> None:
    rows = simulated(40)
    bets, plain = process(*NAMED), process(*NAMED)
    bets.update(own(rows, off), slack=0.3)
    plain.update(rows)
    expected = plain.log_wealths - math.copysign(0.3, off) * 40
    torch.testing.assert_close(bets.log_wealths, expected)


def test_a_constant_lie_hides_nothing() -> None:
    rows = replace(simulated(200), own_logprobs=torch.zeros(200, dtype=torch.float64))
    bets, plain = process(*NAMED, alpha=1e-6), process(*NAMED, alpha=1e-6)
    bets.update(rows, slack=1e-6)
    plain.update(rows)
    assert plain.decision().rejected
    assert bets.decision().rejected
    assert bets.log_wealth == pytest.approx(plain.log_wealth, abs=2.1e-4)


def test_where_none_are_given_the_oracle_is_believed() -> None:
    """Of an answer without log probabilities they are NaN; of an impossible token, -inf."""
    rows = simulated(40)
    bets, plain = process(*NAMED), process(*NAMED)
    bets.update(own(rows, NAN), slack=0.3)
    plain.update(rows)
    assert bets.log_wealths.tolist() == plain.log_wealths.tolist()
    impossible = process(*BARE)
    impossible.update(replace(border([1, 0]), own_logprobs=torch.tensor([-0.7, 0.0])), slack=0.3)
    assert impossible.impossible == 1
    assert not impossible.log_wealths.isnan().any()


def test_what_is_handed_back_is_subtracted_expert_by_expert() -> None:
    bets = process(HALF, DRAFT, alpha=0.1)
    bets.update(binary([1, 1, 1]))  # 8 and 27
    assert bets.decision().rejected
    decision = bets.decision(torch.tensor([math.log(4), math.log(27)]))  # 2 and 1
    assert math.exp(decision.log_wealth) == pytest.approx(1.5)
    assert (decision.rejected, decision.expert) == (False, HALF)
    assert math.exp(decision.lead) == pytest.approx(2)
    # What the plain arm loses is not given to the other.
    lost = bets.decision(torch.tensor([-5.0, -5.0]))
    assert math.exp(lost.log_wealth) == pytest.approx((8 + 27) / 2)
    assert bets.decision().log_wealth == pytest.approx(math.log(35 / 2))


# --- where ----------------------------------------------------------------------------------------


def test_groups_by_hand() -> None:
    """By label: tokens, and what the leading expert made of them; -1 is no label."""
    place = torch.tensor([0, 0, 1, -1])
    bets = process(HALF, DRAFT)
    bets.update(binary([1, 1, 0, 1], groups={"place": place, "task": torch.tensor([4] * 4)}))
    bets.update(binary([1, 0], groups={"place": torch.tensor([2, 0])}))
    three, half = math.log(3), -math.log(2)  # of the draft: 3 for token 1, 1/2 for token 0
    found = bets.where()
    assert bets.decision().expert is DRAFT
    assert found.keys() == {"place", "task"}
    assert found["place"] == {
        0: (3, pytest.approx(2 * three + half)),
        1: (1, pytest.approx(half)),
        2: (1, pytest.approx(three)),
    }
    assert list(found["place"]) == [0, 1, 2]
    assert found["task"] == {4: (4, pytest.approx(3 * three + half))}


def test_groups_add_up() -> None:
    rows = replace(simulated(90), groups={"a": torch.arange(90) % 4, "b": torch.arange(90) // 50})
    bets = process(*NAMED, tilt=True)
    bets.update(rows)
    best = float(bets.log_wealths.max())
    for labels in bets.where().values():
        assert sum(tokens for tokens, _ in labels.values()) == 90
        assert sum(wealth for _, wealth in labels.values()) == pytest.approx(best)


# --- saved and continued --------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [NAMED, [ONLY_BEST, DRAFT]], ids=["named", "ruled out"])
def test_it_continues_from_a_saved_state(experts: Sequence[Expert]) -> None:
    """In JSON, which has no infinity: some experts are ruled out."""
    rows = replace(simulated(120), groups={"place": torch.arange(120) % 3 - 1})
    batches = [cut(rows, i, i + 15) for i in range(0, 120, 15)]
    batches[3] = cut(replace(rows, near=torch.arange(120) % 2 == 0), 45, 60)
    whole = EProcess(experts, q=True, alpha=1e-3)
    saved = whole.state()
    for batch in batches:
        parts = EProcess(experts, q=True, alpha=1e-3)
        parts.resume(json.loads(json.dumps(saved), parse_constant=pytest.fail))
        assert parts.update(batch).tolist() == whole.update(batch).tolist()
        assert parts.decision() == whole.decision()
        assert parts.where() == whole.where()
        saved = parts.state()
    assert saved == whole.state()
    assert whole.log_wealths.min() == -math.inf
    assert whole.crossed_at is not None


@examples(25)
@given(rows=observations())
def test_any_state_is_json(rows: Rows) -> None:
    whole, again = process(*NAMED, tilt=True), process(*NAMED, tilt=True)
    whole.update(replace(rows, groups={"row": torch.arange(len(rows))}))
    again.resume(json.loads(json.dumps(whole.state()), parse_constant=pytest.fail))
    assert again.state() == whole.state()
    assert again.log_wealths.tolist() == whole.log_wealths.tolist()
    assert again.decision() == whole.decision()


def test_a_state_of_other_experts_is_refused() -> None:
    state = process(HALF, DRAFT).state()
    for other in (
        process(DRAFT, HALF),
        process(HALF),
        process(HALF, DRAFT, tilt=True),
        process(HALF, FLAT),
    ):
        with pytest.raises(ValueError, match="a saved state of other experts"):
            other.resume(state)
    with_q, without = process(FLAT, tilt=True), process(FLAT, tilt=True, q=False)
    with pytest.raises(ValueError, match="features"):
        without.resume(with_q.state())


# --- what makes no sense --------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5, 2.0, NAN, math.inf])
def test_a_bad_level_is_named(alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha is {alpha}"):
        process(HALF, alpha=alpha)


def test_no_experts_are_refused() -> None:
    for experts in ([], [HALF, DRAFT]):
        with pytest.raises(ValueError, match="an e-process of no experts"):
            process(*experts, q=False)
    assert process(q=False, tilt=True).experts == (TILT,)


def test_the_fault_may_be_named_when_no_other_family_is_near() -> None:
    def decision(lead: float) -> Decision:
        return Decision(True, 9.0, 5, 5, 0, HALF, 9.0, lead)

    assert decision(LEAD).settled
    assert decision(math.inf).settled
    assert not decision(LEAD - 1e-6).settled
    assert not decision(-1.0).settled
    # 3/2 a token between the draft and the one that follows it half of the time.
    bets = process(HALF, DRAFT)
    needed = math.ceil(math.log(20) / math.log(1.5))
    bets.update(binary([1] * (needed - 1)))
    assert not bets.decision().settled
    bets.update(binary([1]))
    assert bets.decision().settled
