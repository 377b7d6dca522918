"""The chi-square family: each member catches a decoder made for it, and the reference passes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import decoders
import msgspec
import numpy as np
import pytest
from decoders import Wrong, answered, asked

from harness import tiny_pairs
from harness.adapters.reference import EngineDecoder, engine, engine_ngram
from harness.checks import distribution, members
from harness.checks.budget import PROFILES
from harness.checks.continuations import Laws, position
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Round, Sampling
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants import MUTANTS

load = functools.cache(load_pair)
BUDGET = dataclasses.replace(PROFILES["ci"], samples=8_000, alpha=1e-5)
K = 4


def verdict_of(decoder: Any, pair: str | ModelPair = "micro", k: int = K, **budget: Any) -> Verdict:
    on = load(pair) if isinstance(pair, str) else pair
    limits = dataclasses.replace(BUDGET, **budget)
    return distribution.family(Subject(decoder, on, "no:name"), limits, "T=1", k)


def rejected(verdict: Verdict) -> set[str]:
    """Members one of whose tests alone would reject."""
    each = verdict.evidence["alpha_of_an_arm"] / verdict.evidence["tests"]
    return {
        name
        for name, found in verdict.evidence["members"].items()
        if min(found["p_values"].values()) <= each
    }


# --- decoders, each made for one member ----------------------------------------------------------


def shuffled(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
    """Token i of an answer comes from the answer i rows on: all positions right, no context."""
    found = right.generate(requests)
    rows = len(found)
    return [
        msgspec.structs.replace(
            answer,
            tokens=[
                found[(row + i) % rows].tokens[min(i, len(found[(row + i) % rows].tokens) - 1)]
                for i in range(len(answer.tokens))
            ],
        )
        for row, answer in enumerate(found)
    ]


def third_token(completion: Completion) -> Completion:
    """The third token is half the time a fixed one."""
    tokens = list(completion.tokens)
    if len(tokens) > 2 and sum(tokens) % 2:
        tokens[2] = 5
    return msgspec.structs.replace(completion, tokens=tokens)


class RepeatedCoins(SpeculativeEngine):
    """Every round draws with the numbers of the first."""

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        if batch.draft_tokens.any():
            batch.streams._drawn.zero_()
        return super().round(batch, target, cached)


def after_full_acceptance(completion: Completion) -> Completion:
    """The token after a fully accepted round and its bonus token is another one."""
    tokens, at = list(completion.tokens), 0
    for found in completion.rounds or []:
        at += found.accepted + 1
        if found.accepted == K and at < len(tokens):
            tokens[at] = (tokens[at] + 1) % 8
    return msgspec.structs.replace(completion, tokens=tokens)


def restarted_every_call(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
    """Without a seed, row r gets the numbers of seed r, in every call."""
    return right.generate(
        [
            msgspec.structs.replace(r, seed=row if r.seed is None else r.seed)
            for row, r in enumerate(requests)
        ]
    )


class Neighbours:
    """Without a seed, every two rows of a call share one that no other has."""

    def __init__(self) -> None:
        self.given = 10**6

    def __call__(self, right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        self.given += len(requests)
        return right.generate(
            [
                msgspec.structs.replace(r, seed=self.given + row // 2 if r.seed is None else r.seed)
                for row, r in enumerate(requests)
            ]
        )


def with_engine(pair: ModelPair, kind: type[SpeculativeEngine]) -> EngineDecoder:
    return EngineDecoder(pair, ModelDrafter(pair.draft, pair.vocab_size), engine=kind)


MADE_FOR: list[tuple[str, Callable[[ModelPair], Any], str]] = [
    ("3 tokens", lambda pair: Wrong(pair, shuffled), ""),
    ("token 2", lambda pair: Wrong(pair, answered(third_token)), ""),
    ("tokens 0 and 5", lambda pair: with_engine(pair, RepeatedCoins), ""),
    (
        "after 4 accepted",
        lambda pair: Wrong(pair, answered(after_full_acceptance)),
        "what a round with 4 accepted tokens leaves to the next one",
    ),
    (
        "consecutive calls",
        lambda pair: Wrong(pair, restarted_every_call),
        "the generator is restarted, or shared between calls",
    ),
    (
        "neighbouring rows",
        lambda pair: Wrong(pair, Neighbours()),
        "rows of a batch share their noise",
    ),
]


@functools.cache
def verdict_on(member: str) -> Verdict:
    """Of the decoder made for this member."""
    [build] = [build for name, build, _ in MADE_FOR if name == member]
    return verdict_of(build(load("micro")))


@pytest.mark.parametrize(("member", "build", "fault"), MADE_FOR, ids=[c[0] for c in MADE_FOR])
def test_a_member_catches_the_decoder_made_for_it(
    member: str, build: Callable[[ModelPair], Any], fault: str
) -> None:
    verdict = verdict_on(member)
    assert verdict.status is Status.FAIL, str(verdict)
    assert member in rejected(verdict)
    assert verdict.evidence["plain_arm"]["rejected"] == ""
    assert "load_decoder" in verdict.repro
    if fault:
        assert fault in verdict.likely_fault.split("; or ")
        assert "output does not follow the target's law: " in verdict.message
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_members_see_what_the_others_cannot() -> None:
    for member, _, fault in MADE_FOR:
        if fault:  # the joint law of three tokens is right
            assert rejected(verdict_on(member)) - {"tokens 0 and 5"} == {member}
    assert not {"token 0", "token 1", "token 2"} & rejected(verdict_on("3 tokens"))


@pytest.mark.parametrize(
    ("pair", "k"),
    [("micro", 8), ("micro", 1), ("micro-bad", 4), ("micro-self", 4), ("micro-hostile", 1)],
)
def test_the_reference_passes(pair: str, k: int) -> None:
    verdict = verdict_of(engine(load(pair)), pair, k, samples=2_500)
    assert verdict.status is not Status.FAIL, str(verdict)
    assert not verdict.evidence["rejected"]
    assert not verdict.evidence["plain_arm"]["rejected"]
    assert verdict.evidence["samples"] <= 2_500
    lag = f"tokens 0 and {k + 1}"
    assert (lag in verdict.evidence["members"]) == (k <= 4)
    assert (lag in verdict.evidence["left_out"]) == (k > 4)
    assert any(name.startswith("after") for name in verdict.evidence["members"])


def test_deterministic_drafts_pass() -> None:
    assert verdict_of(engine_ngram(load("micro"))).status is Status.PASS


def test_a_pass_says_what_each_member_ruled_out() -> None:
    verdict = verdict_of(engine(load("micro")))
    for words in ("repeat the call before", "repeat the row before", "(after 4 accepted)"):
        assert words in verdict.ruled_out
    arms = verdict.evidence["alpha_of_an_arm"]
    assert arms == BUDGET.alpha / 2  # the plain arm's false alarms count as well
    tables = 1 + 3 + 1 + (K + 1) + 2
    assert verdict.evidence["tests"] == 2 * tables


# --- status -------------------------------------------------------------------------------------


def plain_is_the_drafts(pair: ModelPair) -> Wrong:
    """Speculation is right; plain decoding is the draft's."""
    other = engine(dataclasses.replace(pair, target=pair.draft))

    class Swapped(Wrong):
        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            own = any(request.speculate for request in requests)
            return (self._right if own else other).generate(requests)

    return Swapped(pair, asked())


def test_a_plain_arm_that_fails_alone_is_an_error() -> None:
    verdict = verdict_of(plain_is_the_drafts(load("micro-bad")), "micro-bad")
    assert verdict.status is Status.ERROR
    assert "speculation is not to blame" in verdict.message
    assert not verdict.evidence["rejected"]


def test_both_arms_failing_is_an_error() -> None:
    verdict = verdict_of(decoders.draft_alone(load("micro-bad")), "micro-bad")
    assert verdict.status is Status.ERROR
    assert "speculation is not to blame" in verdict.message


def test_without_a_plain_arm_all_of_alpha_is_the_only_arms() -> None:
    decoder = Wrong(load("micro"), asked())
    decoder.capabilities = frozenset({"sampling", "seed"})
    verdict = verdict_of(decoder)
    assert verdict.status is Status.PASS
    assert verdict.evidence["plain_arm"] == "not declared"
    assert verdict.evidence["alpha_of_an_arm"] == BUDGET.alpha
    names = {"3 tokens", "token 0", "token 1", "token 2", "tokens 0 and 5"}
    assert set(verdict.evidence["members"]) == names | {"consecutive calls", "neighbouring rows"}
    assert "rounds" in verdict.evidence["left_out"]["after a accepted"]


def test_an_impossible_token_comes_first() -> None:
    decoder = decoders.filterless(load("micro"))
    verdict = distribution.family(
        Subject(decoder, load("micro"), "no:name"), BUDGET, "T=0.7 top_k=5 top_p=0.9", K
    )
    assert verdict.status is Status.FAIL
    assert verdict.message.startswith("tokens of probability zero were emitted (")


@pytest.mark.parametrize("samples", [1, 7, 30])
def test_few_samples_are_inconclusive(samples: int) -> None:
    verdict = verdict_of(engine(load("micro")), samples=samples)
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.evidence["samples"] == samples


def test_a_vocabulary_of_one_token_is_inconclusive() -> None:
    models = [tiny_pairs.make_target("llama", 1, seed) for seed in (1, 2)]
    pair = ModelPair("one", *models, vocab_size=1, context_length=tiny_pairs.CONTEXT)
    verdict = verdict_of(engine(pair), pair, samples=300)
    assert verdict.status is Status.INCONCLUSIVE


def test_rounds_that_do_not_add_up_are_left_out() -> None:
    def one_less(completion: Completion) -> Completion:
        return msgspec.structs.replace(completion, rounds=(completion.rounds or [])[:-1])

    verdict = verdict_of(Wrong(load("micro"), answered(one_less)))
    assert verdict.status is Status.PASS
    assert "do not add up" in verdict.evidence["left_out"]["after a accepted"]
    assert not any(name.startswith("after") for name in verdict.evidence["members"])


def test_over_acceptance_is_named() -> None:
    verdict = verdict_of(MUTANTS["over_accept_subtle"](load("micro")))
    assert verdict.status is Status.FAIL
    assert verdict.likely_fault.startswith("drafts are accepted with probability min(1, 1.1 p/q)")
    assert verdict.fault_class is FaultClass.ACCEPTANCE


# --- laws and tables ----------------------------------------------------------------------------


def test_laws_of_pairs_are_sums_of_the_joint_law() -> None:
    """K = 1: the pair (x_0, x_2) of three tokens."""
    pair = load("micro")
    request = Request(
        prompt=(1, 2), max_new_tokens=4, sampling=Sampling(temperature=1.0), draft_tokens=1
    )
    laws = Laws.of(pair, request)
    cells = laws.joint.reshape(8, 8, 8)
    assert laws.lagged == pytest.approx(cells.sum(1).ravel())
    assert laws.first == pytest.approx(cells.sum((1, 2)))
    assert position(laws.joint, 8, 1) == pytest.approx(cells.sum((0, 2)))


def test_pairs_of_calls_and_rows_by_hand() -> None:
    calls = np.array([[0, 1, 1], [1, 0, 1]])  # two calls of three rows; the third has no neighbour
    one, other = members.of_calls(calls, np.array([0.5, 0.5]))
    assert one.counts.tolist() == [0, 1, 1, 1]  # 01, 10, 11
    assert other.counts.tolist() == [0, 1, 1, 0]  # 01, 10
    assert one.law.tolist() == [0.25] * 4
    assert list(members.of_calls(np.empty((0, 0), dtype=np.int64), np.ones(1))) == []


def test_where_rounds_begin_by_hand() -> None:
    """Accepted 1, 1, 0, then the last: tokens 0-1, 2-3, 4, 5-6."""
    rounds = [
        [Round(2, 1), Round(2, 1), Round(2, 0), Round(1, 1)],
        [Round(2, 2)] * 2 + [Round(0, 0)],
    ]
    found = members.round_starts(rounds, 2, 7, 6)
    assert found is not None
    assert found.T.tolist() == [[5, 2, -1], [-1, -1, 3]]


@pytest.mark.parametrize(
    "rounds", [[], [Round(2, 1)], [Round(2, 3)], [Round(2, -1)], [Round(2, 2), Round(2, 2)]]
)
def test_rounds_that_do_not_fit_three_tokens(rounds: list[Round]) -> None:
    assert members.round_starts([rounds], 2, 3, 2) is None
