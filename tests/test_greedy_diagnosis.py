"""A greedy FAIL is called by its name: mutants of every kind, with and without their rounds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import pytest
from decoders import Wrong, asked, longer

from harness.adapters import load_decoder
from harness.checks import greedy
from harness.checks.diagnosis import ACCEPTED, BONUS, RECOVERED, UNDRAFTED, place_of
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject
from harness.contract import Completion, Decoder, Request, Round
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict

load = functools.cache(load_pair)


class Silent:
    """Another decoder, which does not report its rounds."""

    def __init__(self, decoder: Decoder) -> None:
        self.capabilities = decoder.capabilities - {"rounds"}
        self._decoder = decoder

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        answers = self._decoder.generate(requests)
        return [msgspec.structs.replace(answer, rounds=None) for answer in answers]


def verdict_of(name: str, pair: str, silent: bool = False) -> Verdict:
    """The first FAIL of a mutant over some prompts."""
    decoder = load_decoder(f"reference_impl.mutants:{name}", load(pair))
    subject = Subject(Silent(decoder) if silent else decoder, load(pair), "no:name")
    for seed in range(20):
        prompt = random_prompt(load(pair), 5, seed)
        request = Request(prompt=prompt, max_new_tokens=24, draft_tokens=3)
        verdict = greedy.judge(subject, "greedy.identity", request, subject.ask_one(request))
        if not verdict.passed:
            return verdict
    raise AssertionError(f"{name} is right")


CACHE = FaultClass.CACHE
REJECTED, FULL = "rejected tokens leave", "a fully accepted block leaves"
CASES = [
    ("accept_all", "tiny", FaultClass.ACCEPTANCE, "a draft is accepted"),
    ("accept_all", "tiny-bad", FaultClass.ACCEPTANCE, "a draft is accepted"),
    ("last_accepted_repeated", "tiny", FaultClass.ACCEPTANCE, "a draft is accepted"),
    ("bonus_from_draft", "tiny", FaultClass.BONUS, "after a fully accepted block"),
    ("no_rollback", "tiny-bad", CACHE, REJECTED),
    ("no_rollback", "tiny", CACHE, REJECTED),
    ("rollback_too_far", "tiny-bad", CACHE, REJECTED),
    ("rollback_clears", "tiny-bad", CACHE, REJECTED),
    ("stale_row", "tiny-bad", CACHE, REJECTED),
    ("slot_skipped", "tiny-self", CACHE, FULL),
    ("bonus_position_twice", "tiny-self", CACHE, FULL),
    ("state_not_restored", "tiny-mamba-bad", CACHE, REJECTED),
    ("last_maximum", "tiny-ties", FaultClass.GREEDY, "exact ties"),
    ("noisy_block", "tiny", FaultClass.GREEDY, "far less exact"),
]


@pytest.mark.parametrize(("name", "pair", "kind", "words"), CASES)
def test_a_fault_is_named(name: str, pair: str, kind: FaultClass, words: str) -> None:
    verdict = verdict_of(name, pair)
    assert verdict.status is Status.FAIL
    assert (verdict.fault_class, words in verdict.likely_fault) == (kind, True), str(verdict)


def test_without_rounds_what_earlier_rounds_leave_is_told_from_what_one_does() -> None:
    left = verdict_of("slot_skipped", "tiny-self", silent=True)
    assert left.fault_class is CACHE
    assert left.likely_fault == "earlier rounds leave something behind"
    at_once = verdict_of("accept_all", "tiny-bad", silent=True)
    assert at_once.status is Status.FAIL
    assert (at_once.fault_class, at_once.likely_fault) == (None, "")


def test_a_wrong_end_is_one() -> None:
    subject = Subject(longer(load("tiny")), load("tiny"), "no:name")
    request = Request(prompt=(1, 2), max_new_tokens=4)
    verdict = greedy.judge(subject, "greedy.identity", request, subject.ask_one(request))
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.END)


def test_where_plain_decoding_is_wrong_as_well_no_fault_is_named() -> None:
    wrong = Wrong(load("tiny"), asked(prompt=(3, 4)), plain=True)
    subject = Subject(wrong, load("tiny"), "no:name")
    request = Request(prompt=(1, 2), max_new_tokens=4)
    verdict = greedy.judge(subject, "greedy.identity", request, subject.ask_one(request))
    assert (verdict.status, verdict.fault_class) == (Status.ERROR, None)


def test_the_place_of_every_token() -> None:
    rounds = [Round(2, 2), Round(2, 1), Round(0, 0), Round(3, 3)]
    roles = [ACCEPTED, ACCEPTED, BONUS, ACCEPTED, RECOVERED, UNDRAFTED, ACCEPTED, ACCEPTED]
    places = [place_of(rounds, position) for position in range(11)]
    assert [place.role for place in places[:8] if place] == roles
    assert [place.begins for place in places[:8] if place] == [0, 0, 0, 3, 3, 5, 6, 6]
    assert [place.round for place in places[:8] if place] == [0, 0, 0, 1, 1, 2, 3, 3]
    assert places[10] is None
    assert place_of(None, 0) is None
