"""What the checks of acceptance say of right and wrong decoders."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from decoders import Wrong, answered, asked
from torch import Tensor

from harness.adapters import load_decoder
from harness.adapters.reference import EngineDecoder, engine, engine_ngram, page
from harness.checks import acceptance, self_draft
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Round
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.controls import CONTROLS
from reference_impl.drafters.model import ModelDrafter
from reference_impl.mutants import accept_all, length_never_binds, over_accept_subtle

load = functools.cache(load_pair)
BUDGET = dataclasses.replace(
    PROFILES["ci"], draft_tokens=(1, 4), prompts=1, new_tokens=32, samples=2_000
)
ALPHA = 1e-6  # of one statistical test here: none should ever be red by chance


def subject(decoder: Decoder | str, pair: str) -> Subject:
    if isinstance(decoder, str):
        return Subject(load_decoder(decoder, load(pair)), load(pair), decoder)
    return Subject(decoder, load(pair), "no:name")


CHECKS = {
    "identities": (acceptance.identities, "tiny"),
    "expected": (acceptance.expected, "tiny-bad"),
    "self_draft": (self_draft.accepts_all, "tiny-self"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_reference_passes_and_says_what_that_rules_out(check: str) -> None:
    function, pair = CHECKS[check]
    verdict = function(subject("reference", pair), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out
    assert not verdict.evidence.get("flags")
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_acceptance_is_reported_by_position() -> None:
    verdict = acceptance.expected(subject("reference", "tiny"), BUDGET)
    by_position = verdict.evidence["by_position"]
    assert list(by_position) == ["0", "1", "2", "3"]
    for before, after in pairwise(by_position.values()):
        assert after["trials"] <= before["trials"]  # reached after it was accepted
    for at in by_position.values():
        deviation = math.sqrt(at["expected"] * (1 - at["expected"]) / at["trials"])
        assert abs(at["accepted"] - at["expected"]) < 5 * deviation


def test_the_page_passes() -> None:
    small = dataclasses.replace(BUDGET, draft_tokens=(2,), new_tokens=6)
    right = Subject(page(load("micro-self")), load("micro-self"), "reference-page")
    for check in (acceptance.identities, self_draft.accepts_all):
        assert check(right, small).status is Status.PASS


def test_who_has_no_model_for_a_draft_is_not_held_to_one() -> None:
    for check in (acceptance.expected, self_draft.accepts_all):
        lookup = Subject(engine_ngram(load("tiny-self")), load("tiny-self"), "reference-ngram")
        verdict = check(lookup, BUDGET)
        assert (verdict.status, "model_draft" in verdict.message) == (Status.UNSUPPORTED, True)
    assert acceptance.identities(lookup, BUDGET).status is Status.PASS
    other = self_draft.accepts_all(subject("reference", "tiny"), BUDGET)
    assert (other.status, "not its target" in other.message) == (Status.UNSUPPORTED, True)


def test_where_all_may_be_accepted_there_is_no_excess() -> None:
    verdict = acceptance.expected(subject("reference", "tiny-self"), BUDGET)
    assert (verdict.status, "use another pair" in verdict.message) == (Status.UNSUPPORTED, True)


def test_who_drafts_nothing_is_inconclusive() -> None:
    for check, pair in (CHECKS["expected"], CHECKS["self_draft"]):
        verdict = check(subject(Wrong(load(pair), asked(speculate=False)), pair), BUDGET)
        assert verdict.status is Status.INCONCLUSIVE, str(verdict)


def test_a_small_budget_is_inconclusive() -> None:
    small = dataclasses.replace(BUDGET, samples=8)
    verdict = acceptance.expected(subject("reference", "tiny-bad"), small)
    assert verdict.status is Status.INCONCLUSIVE
    assert "cannot show an excess of 10%" in verdict.message
    assert verdict.evidence["first_positions_needed"] > verdict.evidence["first_positions"]


def counted(change: Callable[[list[Round]], list[Round] | None]) -> Callable[[ModelPair], Wrong]:
    """The reference with other rounds under the same tokens."""

    def build(pair: ModelPair) -> Wrong:
        def changed(completion: Completion) -> Completion:
            assert completion.rounds is not None
            return msgspec.structs.replace(completion, rounds=change(completion.rounds))

        return Wrong(pair, answered(changed))

    return build


def merged(rounds: list[Round]) -> list[Round]:
    """Two rounds told as one, whose rejected draft was accepted then: it still adds up."""
    told: list[Round] = []
    for entry in rounds:
        if told and entry.drafted and told[-1].accepted + entry.accepted + 1 <= 4:
            told[-1] = Round(4, told[-1].accepted + entry.accepted + 1)
        else:
            told.append(entry)
    return told


one_too_many = counted(
    lambda rounds: [Round(r.drafted, min(r.drafted, r.accepted + 1)) for r in rounds]
)
MISCOUNTS = {
    "one too many": (one_too_many, "the rounds before the last one account for"),
    "none": (counted(lambda rounds: None), "no rounds for"),
    "empty": (counted(lambda rounds: []), "an empty list of rounds for"),
    "last missing": (counted(lambda rounds: rounds[:-1]), ""),
    "bonus as draft": (
        counted(lambda rounds: [Round(r.drafted + 1, r.accepted) for r in rounds]),
        "K is",
    ),
}


@pytest.mark.parametrize("fault", MISCOUNTS)
def test_counts_that_do_not_add_up_fail(fault: str) -> None:
    build, words = MISCOUNTS[fault]
    for check, pair in CHECKS.values():
        if (fault, pair) == ("one too many", "tiny-self"):
            continue  # which rejects nothing
        verdict = check(subject(build(load(pair)), pair), BUDGET)
        assert (verdict.status, words in verdict.message) == (Status.FAIL, True), str(verdict)
        assert "load_decoder" in verdict.repro


TOO_MUCH: dict[str, Callable[[ModelPair], Decoder]] = {
    "accept_all": accept_all,
    "over_accept": over_accept_subtle,
    "merged": counted(merged),
}


@pytest.mark.parametrize("fault", TOO_MUCH)
def test_more_than_the_laws_allow_fails(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "EXCESS", 0.02)  # a factor of 1.1 in the rule is less in all
    found = subject(TOO_MUCH[fault](load("tiny")), "tiny")
    verdict = acceptance.expected(found, BUDGET)
    assert (verdict.status, "no exact rule" in verdict.message) == (Status.FAIL, True), str(verdict)
    assert verdict.evidence["first_over_expected"][0] > 1
    assert verdict.evidence["plain_arm_log_wealth"] < 5
    assert verdict.fault_class is FaultClass.ACCEPTANCE
    adds_up = dataclasses.replace(BUDGET, draft_tokens=(4,))
    assert acceptance.identities(found, adds_up).status is Status.PASS


def test_where_plain_decoding_is_off_too_speculation_is_not_to_blame() -> None:
    pair = load("tiny-bad")
    own = dataclasses.replace(pair, target=pair.draft)  # the draft decodes, and drafts for itself
    verdict = acceptance.expected(subject(engine(own), "tiny-bad"), BUDGET)
    assert (verdict.status, "not to blame" in verdict.message) == (Status.ERROR, True), str(verdict)


class Stale(ModelDrafter):
    """The last draft of a block that was accepted whole is never fed: its cache keeps a hole."""

    def _catch_up(self, batch: Batch) -> Tensor:
        self._cached = np.maximum(self._cached, batch.length - 1)
        return super()._catch_up(batch)


class EarlyModel(CachedModel):
    """Writes where the token before is."""

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        return super().forward(ids, np.maximum(start - 1, 0), keep)


class Early(ModelDrafter):
    """Positions of the draft are one too low."""

    def start(self, batch: Batch, capacity: int) -> None:
        super().start(batch, capacity)
        self._model.__class__ = EarlyModel


def with_drafter(drafter: type[ModelDrafter], pair: ModelPair) -> EngineDecoder:
    decoder = EngineDecoder(pair, drafter(pair.draft, pair.vocab_size))
    decoder.capabilities |= {"model_draft"}
    return decoder


@pytest.mark.parametrize("drafter", [Stale, Early])
def test_a_fault_on_the_draft_s_side_passes_and_is_told(drafter: type[ModelDrafter]) -> None:
    """Its output is the target's; where the draft is the target, nothing but a fault rejects it."""
    verdict = acceptance.expected(subject(with_drafter(drafter, load("tiny")), "tiny"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    (flag,) = verdict.evidence["flags"]
    assert flag in verdict.message
    assert "token-wise rejection would accept" in flag
    own = self_draft.accepts_all(
        subject(with_drafter(drafter, load("tiny-self")), "tiny-self"), BUDGET
    )
    assert own.status is Status.FAIL, str(own)
    assert "costs speed alone" in own.likely_fault


LESS = {"point_mass"}
# They propose likely tokens, or without the request's sampling.
NO_MODEL_DRAFT = {"sampler_match", "candidates", "bare_draft", "branches"}


@pytest.mark.parametrize("name", CONTROLS)
def test_exact_decoders_do_not_fail(name: str) -> None:
    for check, pair in CHECKS.values():
        verdict = check(subject(CONTROLS[name](load(pair)), pair), BUDGET)
        if name in NO_MODEL_DRAFT and check is not acceptance.identities:
            assert verdict.status is Status.UNSUPPORTED
            continue
        assert verdict.status is Status.PASS, str(verdict)
        flagged = name in LESS and check is not acceptance.identities
        assert bool(verdict.evidence.get("flags")) == flagged


def test_an_output_that_leaves_the_context_is_no_trouble() -> None:
    """Absolute positions end there: the tokens beyond cannot be scored, and need not be."""
    overlong = length_never_binds(load("tiny-gpt2-self"))
    verdict = self_draft.accepts_all_by_position(subject(overlong, "tiny-gpt2-self"), BUDGET)
    assert verdict.status in (Status.PASS, Status.FAIL)
