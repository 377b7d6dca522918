"""What the checks say of decoders that keep too much, and of those that keep what they may."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import msgspec
import pytest
from decoders import ALL

from harness.adapters import load_decoder
from harness.adapters.reference import EngineDecoder, engine
from harness.checks import greedy_drafts, reuse
from harness.checks.budget import PROFILES
from harness.checks.greedy_drafts import Draft, diagnosis
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Round
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status

load = functools.cache(load_pair)
BUDGET = PROFILES["smoke"]
REQUESTS = {
    "second_turn": reuse.second_turn,
    "shared_prefix": reuse.shared_prefix,
    "second_request": reuse.second_request,
}
LONG = {
    "all_rejected": reuse.all_rejected,
    "none_rejected": reuse.none_rejected,
    "alternating": reuse.alternating,
}
CHECKS = REQUESTS | LONG


def subject(name: str, pair: str = "tiny") -> Subject:
    return Subject(load_decoder(name, load(pair)), load(pair), name)


@pytest.mark.parametrize("name", ["reference-ngram", "reference-page", "transformers-assisted"])
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_right_decoders_pass(check: Callable[..., object], name: str) -> None:
    budget = dataclasses.replace(BUDGET, draft_tokens=(3,), new_tokens=8)
    verdict = check(subject(name), budget)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out
    assert verdict.evidence["requests"] > 0


class Silent:
    """Declares nothing but greedy decoding, and reports nothing."""

    capabilities = frozenset({"greedy"})

    def __init__(self, pair: ModelPair) -> None:
        self.right = engine(pair)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        assert all(request.capabilities() == {"greedy"} for request in requests)
        assert len(requests) == 1
        (made,) = self.right.generate(requests)
        return [Completion(tokens=made.tokens, finish_reason=made.finish_reason)]


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_who_declares_little_is_asked_little(check: Callable[..., object]) -> None:
    verdict = check(Subject(Silent(load("tiny")), load("tiny"), "no:name"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert "eos" not in verdict.ruled_out
    assert "accept" not in verdict.message


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_who_is_not_greedy_is_not_asked(check: Callable[..., object]) -> None:
    class Sampling(Silent):
        capabilities = frozenset({"sampling"})

    verdict = check(Subject(Sampling(load("tiny")), load("tiny"), "no:name"), BUDGET)
    assert verdict.status is Status.UNSUPPORTED


class Grudge:
    """Right, until a prompt was longer than twenty tokens."""

    capabilities = ALL

    def __init__(self, pair: ModelPair) -> None:
        self.right, self.spoiled = engine(pair), False

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = self.right.generate(requests)
        spoiled, self.spoiled = self.spoiled, max(len(r.prompt) for r in requests) > 20
        if not spoiled:
            return completions
        return [msgspec.structs.replace(c, tokens=[*c.tokens[:-1], 7]) for c in completions]


def grudge(pair: ModelPair) -> Grudge:
    return Grudge(pair)


def test_a_state_that_is_left_behind_is_named() -> None:
    verdict = reuse.shared_prefix(subject("test_reuse:grudge"), BUDGET)
    assert verdict.status is Status.FAIL, str(verdict)
    assert verdict.fault_class is FaultClass.CACHE
    assert verdict.repro.count("decoder.generate") == 2


def test_what_became_of_a_round() -> None:
    rounds = [Round(0, 0), Round(3, 0), Round(3, 3), Round(3, 1)]
    words = ["no draft", "all rejected", "none rejected", "some rejected"]
    assert [reuse.kind(entry) for entry in rounds] == words


@pytest.mark.parametrize(
    ("name", "pair", "words"),
    [
        ("all_rejected", "tiny-hostile", "all rejected"),
        ("none_rejected", "tiny-self", "none rejected"),
        ("alternating", "tiny", "some rejected"),
    ],
)
def test_the_rounds_that_a_check_is_about_are_there(name: str, pair: str, words: str) -> None:
    verdict = LONG[name](subject("reference", pair), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.evidence["rounds"][words] >= 4
    assert words in verdict.message


# --- greedy drafts --------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", ["tiny", "tiny-bad", "tiny-gpt2", "tiny-ties", "tiny-window"])
def test_all_drafts_that_must_be_are_accepted(pair: str) -> None:
    verdict = greedy_drafts.greedy_drafts(subject("reference", pair), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.evidence["greedy_rejected"] == 0


def test_of_a_hostile_draft_none_must_be() -> None:
    verdict = greedy_drafts.greedy_drafts(subject("reference", "tiny-hostile"), BUDGET)
    assert verdict.status is Status.INCONCLUSIVE, str(verdict)


def test_who_reports_fewer_accepted_than_there_were_rejects_them() -> None:
    class Modest:
        capabilities = ALL

        def __init__(self, pair: ModelPair) -> None:
            self.right: EngineDecoder = engine(pair)

        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            one_each = [Round(1, 0)]
            return [
                msgspec.structs.replace(c, rounds=one_each * len(c.tokens))
                for c in self.right.generate(requests)
            ]

    found = Subject(Modest(load("tiny")), load("tiny"), "no:name")
    verdict = greedy_drafts.greedy_drafts(found, BUDGET)
    assert verdict.status is Status.FAIL
    assert "costs speed alone" in verdict.likely_fault


@pytest.mark.parametrize(
    ("round", "position", "after", "kind", "words"),
    [
        (0, 0, "", FaultClass.SPEED, "from the start"),
        (0, 2, "", FaultClass.POSITIONS, "its own drafts"),
        (3, 0, "accepted whole", FaultClass.CACHE, "bonus token"),
        (3, 0, "cut by a rejection", FaultClass.CACHE, "replaced the rejected one"),
    ],
)
def test_where_rejections_begin_says_what_is_wrong(
    round: int, position: int, after: str, kind: FaultClass, words: str
) -> None:
    first = Draft(0, round, position, after, must=True, accepted=False)
    later = Draft(0, 9, 0, "cut by a rejection", must=True, accepted=False)
    likely, named = diagnosis([first, later])
    assert (named, words in likely) == (kind, True)
