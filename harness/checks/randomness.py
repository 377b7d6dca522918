"""Seeds: the same one repeats, another one does not, none at all is new every time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from harness.checks import greedy, members
from harness.checks.budget import Budget
from harness.checks.continuations import TOKENS as OF_JOINT_LAW
from harness.checks.continuations import Laws, require_enumerable
from harness.checks.prompts import random_prompt
from harness.checks.reproduce import Call, program
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.stats import chi_square
from harness.verdict import FaultClass, Status, Verdict

CALLS, ROWS = 4, 8  # of the same unseeded request
TOKENS = 48  # two independent outputs of that length are not the same: below 1e-9 on 8 ids
SEEDS_OF_SAMPLES = 4  # a profile's samples over the seeds that are tried
POWER = 0.99


def _request(subject: Subject, budget: Budget, seed: int | None) -> Request:
    return Request(
        prompt=random_prompt(subject.pair, 6, budget.seed),
        max_new_tokens=TOKENS,
        sampling=Sampling(temperature=1.0),
        seed=seed,
    )


def _fail(
    subject: Subject,
    name: str,
    calls: Sequence[Sequence[Request]],
    message: str,
    likely_fault: str = "",
    fault_class: FaultClass = FaultClass.RANDOMNESS,
) -> Verdict:
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=message,
        likely_fault=likely_fault,
        fault_class=fault_class,
        repro=program(subject, [Call(tuple(requests)) for requests in calls]),
    )


def reproducible(pair: ModelPair) -> bool:
    """Whether the same draws must give the same ids in a batch as alone.

    Other shapes move the target's laws in their last digits. A decoder that inverts the
    cumulative sum then takes another token with a probability of up to the sum of the changes
    of all ``vocab_size`` borders: with a large vocabulary that is no fault, and happens.
    """
    return pair.vocab_size * greedy.noise_of(pair) * TOKENS < 0.05


def fault_of_company(
    subject: Subject, request: Request, alone: Sequence[int]
) -> tuple[str, FaultClass]:
    """Why a seeded request gives other ids in a batch than alone: its coins, or its neighbours."""
    if subject.ask_one(request).tokens != alone:
        return "the seed does not reach all draws", FaultClass.RANDOMNESS
    if any(twin.tokens != alone for twin in subject.ask([request, request])):
        return "draws depend on the row's place in its batch", FaultClass.RANDOMNESS
    assert request.seed is not None
    other = msgspec.structs.replace(request, seed=request.seed + 1)
    first, second = subject.ask([other, request])
    if first.tokens == second.tokens:
        return "rows of a batch share their draws", FaultClass.RANDOMNESS
    return "rows of a batch are mixed up", FaultClass.BATCH


@check("randomness.seed", "sampling", "seed")
def seed(subject: Subject, budget: Budget) -> Verdict:
    """The same seed gives the same ids: again, after other requests, and in a batch."""
    name = "randomness.seed"
    request, other = _request(subject, budget, 1), _request(subject, budget, 2)
    unseeded = _request(subject, budget, None)
    first = subject.ask_one(request).tokens
    if subject.ask_one(request).tokens != first:
        return _fail(
            subject, name, [[request], [request]], "the same seed gave other ids the second time"
        )
    if subject.ask_one(other).tokens == first:
        message = "seeds 1 and 2 give the same ids"
        return _fail(subject, name, [[request], [other]], message, "seeds are ignored")
    subject.ask_one(unseeded)
    if subject.ask_one(request).tokens != first:
        calls = [[request], [other], [unseeded], [request]]
        return _fail(subject, name, calls, "the same seed gave other ids after other requests")
    in_company = "batch" in subject.decoder.capabilities and reproducible(subject.pair)
    if in_company:
        batch = [other, request, unseeded]
        if subject.ask(batch)[1].tokens != first:
            message = "the same seed gives other ids in a batch than alone"
            fault, kind = fault_of_company(subject, request, first)
            return _fail(subject, name, [[request], batch], message, fault, kind)
    return Verdict(
        check=name,
        status=Status.PASS,
        message="seeded requests repeat" + (", alone and in a batch" if in_company else ""),
        ruled_out=f"any differing token in {TOKENS}: at once, after other requests"
        + (", and in a batch" if in_company else ""),
    )


@check("randomness.unseeded", "sampling")
def unseeded(subject: Subject, budget: Budget) -> Verdict:
    """Requests without a seed are independent: the same one twice must not be the same twice.

    In calls of their own, as rows of one call, and each after a request with a seed, which must
    not stay in force.

    Kills alone: seed_stays.
    """
    name = "randomness.unseeded"
    request = _request(subject, budget, None)
    seeded = msgspec.structs.replace(request, seed=1, max_new_tokens=2)
    outputs: list[tuple[int, ...]] = []
    ways = []

    def repeated(way: str, calls: Sequence[Sequence[Request]], likely_fault: str) -> Verdict | None:
        ways.append(way)
        for call in calls:
            answers = zip(call, subject.ask(call), strict=True)
            outputs.extend(tuple(c.tokens) for asked, c in answers if asked.seed is None)
        if (distinct := len(set(outputs))) == len(outputs):
            return None
        message = f"{len(outputs)} unseeded {way} gave {distinct} different outputs"
        return _fail(subject, name, calls, message, likely_fault)

    again, together = [[request]] * CALLS, [[request] * ROWS]
    if wrong := repeated("calls", again, "the generator is restarted for every call"):
        return wrong
    if "batch" in subject.decoder.capabilities and (
        wrong := repeated("rows of a call", together, "rows of a batch share their draws")
    ):
        return wrong
    if "seed" in subject.decoder.capabilities and (
        wrong := repeated(
            "calls after one with a seed",
            [[seeded], [request]] * 2,
            "a seed stays in force for the requests after it",
        )
    ):
        return wrong
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(outputs)} unseeded requests gave as many different outputs",
        ruled_out=f"an output that comes twice, among {', '.join(ways)}",
    )


@check("randomness.seeds", "sampling", "seed")
def seeds(subject: Subject, budget: Budget) -> Verdict:
    """Outputs over seeds 0, 1, 2, ... are draws from the target's law, neighbours independent.

    Chi-square on the first tokens, each a joint outcome: a decoder that makes few streams of many
    seeds repeats its outputs, and so has counts that no sample has. The plain arm is the control.
    """
    name, pair = "randomness.seeds", subject.pair
    require_enumerable(pair, OF_JOINT_LAW)
    count = budget.samples // SEEDS_OF_SAMPLES
    request = Request(
        prompt=random_prompt(pair, 3, budget.seed),
        max_new_tokens=OF_JOINT_LAW + 1,  # the last token of a request is never drafted
        sampling=Sampling(temperature=1.0),
        draft_tokens=max(budget.draft_tokens),
    )
    laws = Laws.of(pair, request)
    speculates = [True, False] if "plain" in subject.decoder.capabilities else [True]
    alpha = budget.alpha / len(speculates)
    said: dict[bool, str] = {}
    for speculate in speculates:
        asked = [
            msgspec.structs.replace(request, seed=i, speculate=speculate) for i in range(count)
        ]
        outputs = np.array([c.tokens[:OF_JOINT_LAW] for c in subject.ask(asked)])
        tables = list(members.of_seeds(outputs, laws, pair.vocab_size))
        results = {k: r for table in tables for k, r in table.results().items()}
        rejected = chi_square.holm({k: r.p_value for k, r in results.items()}, alpha)
        said[speculate] = (
            f"{rejected[0]}, p = {results[rejected[0]].p_value:.2g}" if rejected else ""
        )
    evidence = {"alpha": alpha, "seeds": count}
    if said.get(False):
        return Verdict(
            check=name,
            status=Status.ERROR,
            message=f"its own plain decoding over {count} seeds does not follow the target's law "
            f"either ({said[False]}): speculation is not to blame",
            evidence=evidence,
        )
    if said[True]:
        return Verdict(
            check=name,
            status=Status.FAIL,
            message=f"outputs over seeds 0 to {count - 1} are no independent draws: {said[True]}",
            likely_fault="different seeds give the same draws, or related ones",
            fault_class=FaultClass.RANDOMNESS,
            evidence=evidence,
        )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"outputs over {count} seeds are independent draws from the target's law",
        ruled_out=f"(power {POWER}) "
        + "; ".join(
            f"{table.smallest(alpha / len(results), POWER):.1%} of {table.share}"
            for table in tables
        ),
        evidence=evidence,
    )
