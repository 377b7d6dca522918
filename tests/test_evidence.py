"""The e-process as a check: right decoders pass, wrong ones are named, a wrong oracle is ERROR."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import decoders
import msgspec
import pytest
import torch
from torch import Tensor

from harness.adapters.reference import EngineDecoder
from harness.checks import arms, evidence
from harness.checks.budget import PROFILES, Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Request
from harness.models import ModelPair, load_pair
from harness.verdict import Status, Verdict
from reference_impl.controls import CONTROLS
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants import MUTANTS
from reference_impl.sampling import Parameters

load = functools.cache(load_pair)
BUDGET = dataclasses.replace(PROFILES["smoke"], draft_tokens=(4,), samples=1_500, alpha=1e-6)
FIRST, FILTERED, *_ = evidence.SETTINGS
Factory = Callable[[ModelPair], object]


def engine(pair: ModelPair, kind: type[SpeculativeEngine] = SpeculativeEngine) -> EngineDecoder:
    return EngineDecoder(pair, ModelDrafter(pair.draft, pair.vocab_size), engine=kind)


def judge(
    decoder: object, pair: str = "tiny-bad", setting: str = FIRST, budget: Budget = BUDGET
) -> Verdict:
    return evidence.evidence(Subject(decoder, load(pair), "x"), budget, setting)


def without(decoder: EngineDecoder, *capabilities: str) -> EngineDecoder:
    decoder.capabilities = decoder.capabilities - set(capabilities)
    return decoder


# --- right decoders -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "setting"), [*(("tiny-bad", s) for s in evidence.SETTINGS), ("tiny-self", FIRST)]
)
def test_the_reference_passes_and_says_what_it_ruled_out(pair: str, setting: str) -> None:
    verdict = judge(engine(load(pair)), pair, setting)
    assert verdict.status is Status.PASS
    assert "power 0.99" in verdict.ruled_out
    assert ("follow the draft" in verdict.ruled_out) == (pair != "tiny-self")
    assert verdict.evidence["plain_arm"]["tokens"] == verdict.evidence["tokens"]
    assert "its own log probabilities are believed" in verdict.evidence["slack"]


@pytest.mark.parametrize("setting", [FIRST, FILTERED])
def test_what_is_gross_where_the_draft_is_not_known(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 tokens of a large target: enough to show that a decoder is greedy."""
    monkeypatch.setattr(arms, "LARGE", 1)
    decoder = without(engine(load("tiny")), "model_draft", "logprobs")
    verdict = judge(decoder, "tiny", setting, dataclasses.replace(BUDGET, large_tokens=512))
    assert verdict.status is Status.PASS
    assert isinstance(verdict.evidence["tokens"], int)
    assert verdict.evidence["tokens"] <= 1024
    assert "of the tokens is the likeliest one" in verdict.ruled_out
    assert "from the draft" not in verdict.ruled_out


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("setting", [FIRST, FILTERED])
def test_decoders_reported_as_wrong_that_are_exact_pass(name: str, setting: str) -> None:
    assert judge(CONTROLS[name](load("tiny-bad")), setting=setting).status is Status.PASS


def test_the_certificate_shrinks_with_the_budget() -> None:
    def share(samples: int) -> float:
        budget = dataclasses.replace(BUDGET, samples=samples)
        words = judge(engine(load("tiny-bad")), budget=budget).ruled_out
        return float(words.split("at most ")[1].split()[0])

    assert share(5_000) < share(500) < 1


# --- wrong ones ---------------------------------------------------------------------------------

NAMES = {
    "accept_all": "comes from the draft, unverified",
    "resample_from_target": "from the target instead of the residual",
    "over_accept_subtle": "min(1, 1.1 p/q)",
    "bonus_from_draft": "comes from the draft, unverified",
}


@pytest.mark.parametrize("name", [*NAMES, "off_by_one_row", "no_rollback"])
def test_a_mutant_fails_and_is_named(name: str) -> None:
    pair = "tiny" if name == "over_accept_subtle" else "tiny-bad"
    budget = dataclasses.replace(BUDGET, samples=20_000)
    verdict = judge(MUTANTS[name](load(pair)), pair, budget=budget)
    assert verdict.status is Status.FAIL
    assert NAMES.get(name, "") in verdict.likely_fault
    assert "times likelier than the target's law" in verdict.likely_fault
    assert "load_decoder" in verdict.repro


def test_where_says_which_tokens_are_wrong() -> None:
    """The drafted ones of a decoder that takes the bonus token from the draft are right."""
    budget = dataclasses.replace(BUDGET, samples=20_000)
    verdict = judge(MUTANTS["bonus_from_draft"](load("tiny")), "tiny", budget=budget)
    found = verdict.evidence["where"]["draft or bonus"]
    bonus, drafted = (
        float(found[key].split("10^")[1])
        for key in ("bonus after a fully accepted block", "drafted")
    )
    assert bonus > 6
    assert drafted < 0


def test_impossible_tokens_are_proof_and_name_the_filter() -> None:
    verdict = judge(decoders.filterless(load("tiny-bad")), setting=FILTERED)
    assert verdict.status is Status.FAIL
    assert "tokens of probability zero" in verdict.message
    assert verdict.likely_fault.startswith("top_k, top_p and min_p are ignored")


class AgainAndAgain(EngineDecoder):
    """Whatever the seed, the answer to a request is the one that it had before."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        plain = [msgspec.structs.replace(r, seed=hash(r.prompt) % 1000) for r in requests]
        return super().generate(plain if requests[0].speculate else list(requests))


def test_answers_that_repeat_are_named() -> None:
    pair = load("tiny-bad")
    verdict = judge(AgainAndAgain(pair, ModelDrafter(pair.draft, pair.vocab_size)))
    assert verdict.status is Status.FAIL
    assert "repeats an earlier answer" in verdict.likely_fault


class Scripted:
    """Answers that were drawn in advance; those of the arms change places from a batch on."""

    capabilities = frozenset({"sampling", "plain", "seed"})

    def __init__(self, swapped_from: int) -> None:
        self._swapped_from, self._batch = swapped_from, 0

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        batch, self._batch = self._batch // 2, self._batch + 1
        arm = requests[0].speculate != (batch >= self._swapped_from)
        draws = torch.Generator().manual_seed(2 * batch + arm)
        return [
            Completion(
                tokens=torch.randint(64, (r.max_new_tokens,), generator=draws).tolist(),
                finish_reason="length",
            )
            for r in requests
        ]


def test_answers_that_change_places_turn_the_sign_of_what_they_won() -> None:
    """Whatever each arm said before: else the pairs are not exchangeable, and the bets not fair."""

    def second_batch(swapped_from: int) -> Tensor:
        subject = Subject(Scripted(swapped_from), load("tiny"), "x")
        both = arms.TwoArms(subject, BUDGET, evidence.SETTINGS[FIRST])
        for _ in range(2):
            plain, speculative = both._batch(speculate=False), both._batch(speculate=True)
        return speculative - plain

    found = second_batch(2)
    assert found.abs().amax(0).count_nonzero() == found.shape[1]
    torch.testing.assert_close(second_batch(1), -found, rtol=0, atol=1e-9)


# --- where the oracle is not this engine's --------------------------------------------------------


class Hotter(SpeculativeEngine):
    """Another temperature than asked for, with speculation or without."""

    times = 1.3

    def spread(self, batch: object, width: int) -> Parameters:
        parameters = super().spread(batch, width)
        return parameters.replaced(temperature=parameters.temperature * self.times)


def test_a_wrong_plain_arm_is_an_error_and_not_speculations_fault() -> None:
    verdict = judge(without(engine(load("tiny"), Hotter), "logprobs"), "tiny")
    assert verdict.status is Status.ERROR
    assert "speculation is not to blame" in verdict.message
    assert "another temperature" in verdict.likely_fault


def test_log_probabilities_of_a_wrong_law_excuse_nothing() -> None:
    """They are those of the law that it draws from, and far from the oracle's."""
    verdict = judge(engine(load("tiny"), Hotter), "tiny")
    assert verdict.status is Status.ERROR
    assert "were not used" in verdict.evidence["slack"]


@pytest.mark.parametrize("seed", [1, 2])
def test_both_arms_off_alike_and_no_log_probabilities_is_never_a_fail(seed: int) -> None:
    """One arm is far ahead of the other by luck alone: wealth handed back must not decide."""

    class SlightlyHotter(Hotter):
        times = 1.03

    decoder = without(engine(load("tiny"), SlightlyHotter), "logprobs")
    budget = dataclasses.replace(BUDGET, samples=5_000, seed=1_000_000 * seed)
    assert judge(decoder, "tiny", budget=budget).status is not Status.FAIL


def test_without_log_probabilities_the_arms_decide() -> None:
    decoder = without(MUTANTS["resample_from_target"](load("tiny-bad")), "logprobs")
    verdict = judge(decoder, budget=dataclasses.replace(BUDGET, samples=20_000))
    assert verdict.status is Status.FAIL
    assert "from the target instead of the residual" in verdict.likely_fault


def test_both_arms_wrong_and_each_in_its_own_way_is_a_fail() -> None:
    class Both(Hotter):
        def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
            return torch.ones_like(p, dtype=torch.bool)

    verdict = judge(without(engine(load("tiny-bad"), Both), "logprobs"))
    assert verdict.status is Status.FAIL
    assert "its plain decoding does not follow the target's law either" in verdict.message


def in_bfloat16(pair: ModelPair) -> ModelPair:
    target, draft = (copy.deepcopy(m).bfloat16() for m in (pair.target, pair.draft))
    return dataclasses.replace(pair, target=target, draft=draft)


class Leaky(SpeculativeEngine):
    """3% of the drafts are accepted unseen."""

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(p, q, u) | ((u * 2**20) % 1 < 0.03)  # digits that decided nothing


@pytest.mark.parametrize("believed", [True, False])
def test_bfloat16_passes_against_float32_and_hides_no_leak_of_3_percent(believed: bool) -> None:
    pair = in_bfloat16(load("tiny-bad"))
    drop = () if believed else ("logprobs",)
    right, wrong = (
        judge(without(engine(pair, kind), *drop)) for kind in (SpeculativeEngine, Leaky)
    )
    assert right.status is Status.PASS
    assert wrong.status is Status.FAIL
    assert wrong.likely_fault.startswith("a share of 0.03 of the tokens comes from the draft")
    words = "believed that far" if believed else "handed back"
    assert words in right.evidence["slack"]


class Silent(EngineDecoder):
    """Log probabilities of zero, in its speculative arm alone."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = super().generate(requests)
        if requests[0].speculate:
            for completion in completions:
                completion.logprobs = [0.0] * len(completion.tokens)
        return completions


def test_log_probabilities_that_lie_hide_nothing() -> None:
    pair = load("tiny-bad")
    decoder = Silent(pair, ModelDrafter(pair.draft, pair.vocab_size), engine=Leaky)
    assert judge(decoder).status is Status.FAIL


# --- decoders that can do less ------------------------------------------------------------------


def test_without_a_plain_arm_there_is_no_control_and_it_is_said() -> None:
    verdict = judge(without(engine(load("tiny-bad")), "plain", "logprobs"))
    assert verdict.status is Status.PASS
    assert "no plain arm" in verdict.evidence["slack"]
    assert "plain_arm" not in verdict.evidence
    wrong = without(MUTANTS["accept_all"](load("tiny-bad")), "plain", "logprobs")
    assert judge(wrong).status is Status.FAIL


def test_nothing_is_said_of_a_draft_that_is_not_the_pairs() -> None:
    verdict = judge(without(engine(load("tiny-bad")), "model_draft"))
    assert verdict.status is Status.PASS
    assert "draft" not in verdict.ruled_out


def test_tokens_that_were_not_asked_for_are_not_looked_at() -> None:
    verdict = judge(decoders.longer(load("tiny-bad"), by=3))
    assert verdict.status is Status.PASS
    assert verdict.evidence["tokens"] % arms.NEW_TOKENS == 0


def test_filters_that_are_not_declared_are_unsupported() -> None:
    decoder = without(engine(load("tiny-bad")), "top_p")
    verdict = judge(decoder, setting=FILTERED)
    assert verdict.status is Status.UNSUPPORTED
    assert "top_p" in verdict.message


def test_too_few_tokens_are_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "NEW_TOKENS", 2)
    budget = dataclasses.replace(BUDGET, samples=1, alpha=1e-60)
    for pair in ("tiny", "tiny-self"):
        assert judge(engine(load(pair)), pair, budget=budget).status is Status.INCONCLUSIVE


def test_a_run_repeats() -> None:
    budget = dataclasses.replace(BUDGET, samples=500)
    one, other = (judge(engine(load("tiny-bad")), budget=budget) for _ in range(2))
    assert one == other


# --- the share of drafted tokens -----------------------------------------------------------------


@pytest.mark.parametrize(("b", "k", "share"), [(0.0, 4, 1.0), (1.0, 4, 0.8), (0.5, 1, 2 / 3)])
def test_share_of_drafted_tokens_by_hand(b: float, k: int, share: float) -> None:
    """K = 1, b = 1/2: rounds of one or two tokens, every other one with a bonus."""
    both = arms.TwoArms(
        Subject(engine(load("tiny")), load("tiny"), "x"), BUDGET, evidence.SETTINGS[FIRST]
    )
    both.reach.growth.rows, both.reach.kept = 10, 10 * b
    assert both.reach.drafted_share(k) == pytest.approx(share)
    both.reach.growth.rows = 0
    assert math.isinf(both.reach.needed(1e9))  # before the first batch nothing is known
