"""Decoders reported as wrong that are exact: their laws, and that the suites pass them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import torch
from engine_laws import CASES, Watched, assert_exact
from hypothesis import given
from scipy import stats
from strategies import examples
from torch import Tensor

from harness import oracle
from harness.adapters.reference import EngineDecoder, engine
from harness.checks import exact_law, greedy
from harness.checks.exact_law import ACCURACY, Table, cases, laws_of, output_law, product_law
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair, load_pair
from harness.stats import chi_square
from harness.verdict import Status
from reference_impl.autoregressive import Laws, finished
from reference_impl.branches import tried_in_turn
from reference_impl.controls import CONTROLS, engines, other_randomness
from reference_impl.drafters.model import ModelDrafter
from reference_impl.mutants import resample_from_target
from reference_impl.randomness import Randomness, Streams
from reference_impl.speculative import draft_with

load = functools.cache(load_pair)
ALPHA = 1e-6  # of one test here: none of them should ever be red by chance

# --- the laws, exactly: each control on a page, its randomness enumerated -------------------------

Step = Callable[[Laws, Laws, list[int], int, Randomness], list[int]]
"""``step(p, q, output, room, randomness)``: the tokens that one round emits."""


def without(law: Tensor, token: int) -> Tensor:
    left = law.clone()
    left[token] = 0
    return left


def verified(p: Laws, output: list[int], drafts: list[int], randomness: Randomness) -> list[int]:
    """The drafts as point masses."""
    emitted: list[int] = []
    for draft in drafts:
        law = p([*output, *emitted], 1)[0]
        if not randomness.flip(float(law[draft])):
            return [*emitted, randomness.choice(without(law, draft))]
        emitted.append(draft)
    return [*emitted, randomness.choice(p([*output, *emitted], 1)[0])]


def likeliest(q: Laws, output: list[int], room: int) -> list[int]:
    drafts: list[int] = []
    for _ in range(room):
        drafts.append(int(q([*output, *drafts], 1)[0].argmax()))
    return drafts


def point_mass(p: Laws, q: Laws, output: list[int], room: int, randomness: Randomness) -> list[int]:
    drafts, _ = draft_with(q)(output, room, randomness)
    return verified(p, output, drafts, randomness)


def sampler_match(
    p: Laws, q: Laws, output: list[int], room: int, randomness: Randomness
) -> list[int]:
    emitted: list[int] = []
    for draft in [*likeliest(q, output, room), -1]:
        emitted.append(randomness.choice(p([*output, *emitted], 1)[0]))
        if emitted[-1] != draft:
            break
    return emitted


def candidates(p: Laws, q: Laws, output: list[int], room: int, randomness: Randomness) -> list[int]:
    if not room:
        return verified(p, output, [], randomness)
    chain = likeliest(q, output, room)
    law = p(output, 1)[0]
    for candidate in q(output, 1)[0].argsort(descending=True)[:3].tolist():
        if randomness.flip(float(law[candidate] / law.sum())):
            if candidate != chain[0]:
                return [candidate]
            return [candidate, *verified(p, [*output, candidate], chain[1:], randomness)]
        law = without(law, candidate)
    return [randomness.choice(law)]


def decode(step: Step, p: Laws, q: Laws, request: Request, randomness: Randomness) -> Completion:
    output: list[int] = []
    while True:
        room = min(request.draft_tokens, request.max_new_tokens - len(output) - 1)
        for token in step(p, q, output, room, randomness):
            output.append(token)
            if reason := finished(output, request):
                return Completion(tokens=output, finish_reason=reason)


@pytest.mark.parametrize("step", [point_mass, sampler_match, candidates])
@examples(40)
@given(case=cases())
def test_its_output_law_is_the_target_s(step: Step, case: tuple[Table, Table, Request]) -> None:
    p, q, request = laws_of(case[0]), laws_of(case[1]), case[2]
    law = output_law(lambda randomness: decode(step, p, q, request, randomness))
    assert exact_law.distance(law, product_law(p, request)) < ACCURACY


@pytest.mark.parametrize("case", ["narrow", "everything"])
def test_the_law_of_the_engine_that_takes_its_draft_for_point_masses(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen(Watched, engines.PointMass):
        pass

    pair = load_pair("micro-bad", dtype="float64")
    drafter = ModelDrafter(pair.draft, pair.vocab_size)
    watched = Seen(pair.target, drafter, pair.vocab_size)
    assert_exact(watched, pair, CASES[case], monkeypatch)


def test_candidates_tried_in_turn_share_the_law() -> None:
    """All coins of a grid on whose lines every border lies: the law, exactly."""
    p = torch.tensor([3, 2, 0, 3, 4], dtype=torch.float64) / 12
    grid = (torch.arange(12, dtype=torch.float64) + 0.5) / 12
    u = torch.cartesian_prod(grid, grid, grid, grid)
    fixed = torch.tensor([3, 2, 0]).expand(len(u), -1)
    drawn = tried_in_turn(p.expand(len(u), -1), fixed, u)
    law = drawn.bincount(minlength=5).double() / len(u)
    assert law.tolist() == pytest.approx(p.tolist(), abs=ACCURACY)


def test_candidates_that_leave_nothing() -> None:
    p = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    u = torch.full((1, 4), 1 - 2.0**-52, dtype=torch.float64)  # the largest coin
    for fixed in ([1, 2, 3], [2, 3, 1], [2, 1, 3]):
        assert tried_in_turn(p, torch.tensor([fixed]), u).tolist() == [1]


def test_a_race_is_won_as_often_as_an_inverted_sum() -> None:
    decoder = other_randomness(load("micro")).engine
    p, q = torch.tensor([0.5, 0.25, 0, 0.15, 0.1, 0, 0, 0]), torch.eye(8)[0] * 0.3
    u = Streams([1]).uniform(20_000)[0]
    won = decoder.choose(p.expand(len(u), -1), q.expand(len(u), -1), u).bincount(minlength=8)
    law = torch.tensor([0.2, 0.25, 0, 0.15, 0.1, 0, 0, 0], dtype=torch.float64) / 0.7
    assert not won[law == 0].any()
    assert stats.chisquare(won[law > 0], law[law > 0] * len(u)).pvalue > ALPHA
    coins = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    kept = decoder.accept(torch.tensor(0.2), torch.tensor(0.5), coins)
    assert int(kept.sum()) == 400


# --- the laws of the engines ----------------------------------------------------------------------

HOT = Request(
    prompt=(3, 1, 4), max_new_tokens=4, sampling=Sampling(temperature=1.2), draft_tokens=3
)


def seeded(request: Request, count: int) -> list[Request]:
    return [msgspec.structs.replace(request, seed=seed) for seed in range(count)]


def p_value(decoder: EngineDecoder, pair: ModelPair) -> float:
    """Of Pearson's test of three tokens."""
    law = oracle.joint(oracle.joint_law(pair.target, HOT, 3, pair.vocab_size)).numpy()
    tokens = np.array([c.tokens[:3] for c in decoder.generate(seeded(HOT, 5000))])
    cells = tokens @ pair.vocab_size ** np.arange(2, -1, -1)
    counts = np.bincount(cells, minlength=len(law))
    return chi_square.goodness_of_fit(counts, law).p_value


@pytest.mark.parametrize("pair", ["micro", "micro-bad"])
@pytest.mark.parametrize("name", CONTROLS)
def test_sampled_output_follows_the_target(name: str, pair: str) -> None:
    assert p_value(CONTROLS[name](load(pair)), load(pair)) > ALPHA


def test_which_shows_a_fault_where_there_is_one() -> None:
    assert p_value(resample_from_target(load("micro-bad")), load("micro-bad")) < ALPHA


# --- acceptance: what they pay --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chance"),
    [
        ("point_mass", lambda p, q: (p * q).sum()),
        ("sampler_match", lambda p, q: p[q.argmax()]),
        ("candidates", lambda p, q: p[q.argmax()]),
        ("other_randomness", lambda p, q: torch.minimum(p, q).sum()),
    ],
)
def test_how_often_it_accepts(name: str, chance: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Less than the token-wise rule, which accepts as often as its draws from q allow."""
    pair, samples = load("micro"), 4000
    request = msgspec.structs.replace(HOT, max_new_tokens=2)
    p, q = (
        oracle.laws_along(model, request, [0], pair.vocab_size)[1][0].double()
        for model in (pair.target, pair.draft)
    )
    completions = CONTROLS[name](pair).generate(seeded(request, samples))
    rounds = [c.rounds[0] for c in completions if c.rounds]
    assert {entry.drafted for entry in rounds} == {1}
    accepted = sum(entry.accepted for entry in rounds)
    assert stats.binomtest(accepted, samples, float(chance(p, q))).pvalue > ALPHA
    token_wise = float(torch.minimum(p, q).sum())
    less = stats.binomtest(accepted, samples, token_wise, alternative="less").pvalue < ALPHA
    assert less == (name != "other_randomness")


# --- seeds ----------------------------------------------------------------------------------------


def test_the_same_seed_repeats_and_promises_no_more() -> None:
    pair = load("tiny")
    request = Request(prompt=(1, 2, 3), max_new_tokens=48, sampling=Sampling(temperature=1.0))
    requests = seeded(request, 4)
    plain = [msgspec.structs.replace(r, speculate=False) for r in requests]

    def ids(decoder: EngineDecoder, asked: list[Request]) -> list[list[int]]:
        return [completion.tokens for completion in decoder.generate(asked)]

    decoder = other_randomness(pair)
    speculative = ids(decoder, requests)
    assert ids(decoder, requests) == speculative
    assert [ids(decoder, [r])[0] for r in requests] == speculative
    for other in (ids(decoder, plain), ids(engine(pair), plain), ids(engine(pair), requests)):
        assert all(one != another for one, another in zip(speculative, other, strict=True))


# --- near-ties ------------------------------------------------------------------------------------


class Coarse(engines.NearTies):
    """Rounded far beyond the noise of float32."""

    step = 0.25


def nearly_tied(pair: ModelPair, seed: int) -> Request:
    """Its two best first tokens tie up to the last digits, by a bias of the second one."""
    request = Request(prompt=random_prompt(pair, 6, seed), max_new_tokens=8, draft_tokens=3)
    scores, _ = oracle.laws_along(pair.target, request, [0], pair.vocab_size)
    best = scores[0].topk(2)
    gap = float(best.values[0] - best.values[1])
    bias = Sampling(logit_bias={int(best.indices[1]): gap})
    return msgspec.structs.replace(request, sampling=bias)


@pytest.mark.parametrize(
    ("kernel", "status"), [(engines.NearTies, Status.PASS), (Coarse, Status.FAIL)]
)
def test_greedy_output_may_differ_within_the_noise_only(
    kernel: type[engines.NearTies], status: Status
) -> None:
    pair = load("tiny")
    decoder = EngineDecoder(pair, ModelDrafter(pair.draft, pair.vocab_size), engine=kernel)
    requests = [nearly_tied(pair, seed) for seed in range(16)]
    subject = Subject(decoder, pair, "no:name")
    verdict = greedy.judge_all(subject, "greedy.identity", requests, "any differing token")
    assert verdict.status is status, str(verdict)
    if verdict.passed:
        ties = verdict.evidence["near_ties"]
        assert any(tie.startswith("token 0: ") for tie in ties)
        outputs = [[c.tokens for c in d.generate(requests)] for d in (decoder, engine(pair))]
        assert outputs[0] != outputs[1]
    else:
        assert verdict.evidence["gap"] > greedy.NOISE_MARGIN * greedy.noise_of(pair)
        assert "plain_tokens" in verdict.evidence  # its plain arm is right
