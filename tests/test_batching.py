"""A row gets what it gets alone: wrong companies of rows fail, each for its own reason."""

from __future__ import annotations

import functools
from collections.abc import Callable

import decoders
import msgspec
import pytest
from decoders import Wrong

from harness.adapters.reference import EngineDecoder, engine
from harness.checks import batching, greedy, randomness
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Sampling
from harness.models import load_pair
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.mutants import MUTANTS

load = functools.cache(load_pair)
BUDGET = Budget(
    draft_tokens=(1, 4), prompts=1, new_tokens=16, samples=3_000, tables=40, large_tokens=600
)
Check = Callable[[Subject, Budget], Verdict]
CHECKS: list[Check] = [batching.rows, batching.ends, batching.sampled]


def of(decoder: object, pair: str = "tiny-bad") -> Subject:
    return Subject(decoder, load(pair), "no:name")  # type: ignore[arg-type]


def mutant(name: str, pair: str = "tiny-bad") -> Subject:
    return Subject(MUTANTS[name](load(pair)), load(pair), f"reference_impl.mutants:{name}")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_reference_passes(check: Check) -> None:
    verdict = check(of(engine(load("tiny-bad"))), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    assert verdict.ruled_out


CASES: list[tuple[Check, str, FaultClass, str]] = [
    (batching.rows, "greedy_row_sampled", FaultClass.BATCH, "token"),
    (batching.rows, "divides_by_zero", FaultClass.BATCH, "alone each of its requests is answered"),
    (batching.ends, "ended_rows_go_on", FaultClass.BATCH, "in a batch; alone it is right"),
    (batching.ends, "first_rows_remain", FaultClass.BATCH, "in a batch; alone it is right"),
    (batching.sampled, "worst_accepted", FaultClass.BATCH, "other ids in a batch"),
    (batching.sampled, "seed_plus_row", FaultClass.RANDOMNESS, "other ids in a batch"),
    (batching.sampled, "shared_by_rows", FaultClass.RANDOMNESS, "other ids in a batch"),
    (batching.sampled, "seed_ignored", FaultClass.RANDOMNESS, "other ids in a batch"),
]


@pytest.mark.parametrize(
    ("check", "name", "kind", "words"), [pytest.param(*c, id=c[1]) for c in CASES]
)
def test_a_row_that_is_spoilt_fails(check: Check, name: str, kind: FaultClass, words: str) -> None:
    verdict = check(mutant(name), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, kind), str(verdict)
    assert words in verdict.message
    assert "load_decoder" in verdict.repro


def test_a_row_that_is_wrong_alone_is_not_the_batchs_fault() -> None:
    verdict = batching.rows(of(decoders.last_token(load("tiny-bad"))), BUDGET)
    assert verdict.status is Status.FAIL
    assert verdict.fault_class is not FaultClass.BATCH


def test_a_decoder_that_refuses_alone_as_well_is_an_error() -> None:
    verdict = batching.rows(of(decoders.raises(load("tiny-bad"))), BUDGET)
    assert (verdict.status, "out of memory" in verdict.message) == (Status.ERROR, True)


def test_what_is_not_declared_is_unsupported() -> None:
    decoder = Wrong(load("tiny-bad"), decoders.asked())
    decoder.capabilities = decoders.ALL - {"batch"}
    for check in CHECKS:
        assert check(of(decoder), BUDGET).status is Status.UNSUPPORTED
    decoder.capabilities = decoders.ALL - {"seed"}
    assert batching.sampled(of(decoder), BUDGET).status is Status.UNSUPPORTED
    assert batching.rows(of(decoder), BUDGET).status is Status.PASS


def test_little_is_enough() -> None:
    """No sampling, no plain arm, no EOS, no stop sequences; then no filters and no greedy rows."""
    decoder = Wrong(load("tiny-bad"), decoders.asked())
    decoder.capabilities = frozenset({"greedy", "batch"})
    assert batching.rows(of(decoder), BUDGET).status is Status.PASS
    assert batching.ends(of(decoder), BUDGET).status is Status.PASS
    decoder.capabilities = frozenset({"sampling", "seed", "batch"})
    assert batching.sampled(of(decoder), BUDGET).status is Status.PASS


def test_where_rounding_may_part_ids_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "noise_of", lambda pair: 1e-3)
    verdict = batching.sampled(of(engine(load("tiny-bad"))), BUDGET)
    assert (verdict.status, "vocabulary" in verdict.message) == (Status.UNSUPPORTED, True)


def last_of_a_shape(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
    """Rows of different ids share a call where all else is alike; the last of them is spoilt."""
    answers, calls = right.generate(requests), dict[object, dict[tuple[int, ...], int]]()
    for row, r in enumerate(requests):
        shape = len(r.prompt), r.max_new_tokens, r.draft_tokens, r.sampling, r.speculate
        calls.setdefault(str(shape), {})[r.prompt] = row
    for call in calls.values():
        if len(call) > 1:
            answers[max(call.values())].tokens[-1] ^= 1
    return answers


def test_rows_of_one_shape_are_asked_for() -> None:
    verdict = batching.rows(of(Wrong(load("tiny-bad"), last_of_a_shape)), BUDGET)
    assert (verdict.status, verdict.fault_class) == (Status.FAIL, FaultClass.BATCH), str(verdict)


class OtherOnce:
    """The last token of the first batch's first row is another one, and never again."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        completions = right.generate(requests)
        if len(requests) > 1 and not self.done:
            self.done = True
            completions[0] = decoders.other_last_token(completions[0])
        return completions


def test_one_set_of_seeds_that_differs_may_be_rounding() -> None:
    assert batching.sampled(of(Wrong(load("tiny-bad"), OtherOnce())), BUDGET).passed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("seed_ignored", "does not reach all draws"),
        ("seed_plus_row", "row's place"),
        ("shared_by_rows", "share their draws"),
        ("worst_accepted", "mixed up"),
    ],
)
def test_what_company_does_to_a_seed(name: str, words: str) -> None:
    request = Request(
        prompt=(1, 2, 3), max_new_tokens=32, sampling=Sampling(temperature=1.0), seed=1
    )
    subject = mutant(name)
    alone = subject.ask_one(msgspec.structs.replace(request)).tokens
    assert words in randomness.fault_of_company(subject, request, alone)[0]
