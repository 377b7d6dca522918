"""Seeds: the same one repeats, another one does not, none at all is new every time."""

from __future__ import annotations

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.verdict import Status, Verdict

_CALLS = 8
TOKENS = 48  # two independent outputs of that length are not the same: below 1e-9 on 8 ids


def _request(subject: Subject, budget: Budget, seed: int | None) -> Request:
    return Request(
        prompt=random_prompt(subject.pair, 6, budget.seed),
        max_new_tokens=TOKENS,
        sampling=Sampling(temperature=1.0),
        seed=seed,
    )


def _fail(name: str, message: str, **evidence: object) -> Verdict:
    return Verdict(check=name, status=Status.FAIL, message=message, evidence=dict(evidence))


def _reproducible(pair: ModelPair) -> bool:
    """Whether the same draws must give the same ids in a batch as alone.

    Other shapes move the target's laws in their last digits. A decoder that inverts the
    cumulative sum then takes another token with a probability of up to the sum of the changes
    of all ``vocab_size`` borders: with a large vocabulary that is no fault, and happens.
    """
    return pair.vocab_size * greedy.noise_of(pair) * TOKENS < 0.05


@check("randomness.seed", "sampling", "seed")
def seed(subject: Subject, budget: Budget) -> Verdict:
    """The same seed gives the same ids: again, after other requests, and in a batch."""
    name = "randomness.seed"
    request, other = _request(subject, budget, 1), _request(subject, budget, 2)
    first = subject.ask_one(request).tokens
    different = subject.ask_one(other).tokens
    if subject.ask_one(request).tokens != first:
        return _fail(name, "the same seed gave other ids the second time")
    if different == first:
        return _fail(name, "seeds 1 and 2 give the same ids", ids=first)
    in_company = "batch" in subject.decoder.capabilities and _reproducible(subject.pair)
    if in_company:
        batch = [other, request, _request(subject, budget, None)]
        if subject.ask(batch)[1].tokens != first:
            return _fail(name, "the same seed gives other ids in a batch than alone")
    return Verdict(
        check=name,
        status=Status.PASS,
        message="seeded requests repeat" + (", alone and in a batch" if in_company else ""),
        ruled_out=f"any differing token in {TOKENS}",
    )


@check("randomness.unseeded", "sampling")
def unseeded(subject: Subject, budget: Budget) -> Verdict:
    """Requests without a seed are independent: the same one twice must not be the same twice."""
    name = "randomness.unseeded"
    request = _request(subject, budget, None)
    outputs = [tuple(subject.ask_one(request).tokens) for _ in range(_CALLS)]
    if "batch" in subject.decoder.capabilities:
        outputs += [tuple(c.tokens) for c in subject.ask([request] * _CALLS)]
    distinct = len(set(outputs))
    if distinct < len(outputs):
        return _fail(
            name,
            f"{len(outputs)} unseeded calls gave {distinct} different outputs",
            likely="the generator is restarted, or shared between rows",
        )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(outputs)} unseeded calls gave {distinct} different outputs",
        ruled_out="a generator that is restarted for every call",
    )
