"""Speculation on against speculation off, without an oracle: what can be said of a server.

Both arms are the engine's own, so nothing need be known of its weights. What is wrong in both arms
alike is not seen; the other suites are for that, given the weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness.checks.budget import LARGE, Budget
from harness.checks.prompts import random_prompt, repetitive_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import Completion, Request, Sampling
from harness.stats.paired_bets import PairedBets, smallest_drift
from harness.verdict import FaultClass, Status, Unsupported, Verdict

PROMPT = 12  # token ids
PROMPTS = 4  # of sampled pairs
TEMPERATURE = 0.8  # at 1 nobody sees whether it is applied
NEAR_TIES = 0.02  # of tokens, at the most: an engine's two shapes may part there, and are right
NOISE_MARGIN = 4.0  # the noise of log probabilities is the largest of a sample
NOISE_FLOOR = 1e-3  # nats
SAMPLES_PER_PAIR = 16  # of a budget that counts short generations
FEWEST_PAIRS = 40  # fewer than about 30 cannot show anything: so many, if a pair costs no more than
LEAST_PER_PAIR = 6  # samples, by its tokens
NEW_TOKENS = 32
BUCKETS = 32  # of hashed ids
BATCH = 64  # pairs that are asked for at a time
POWER = 0.99


@check("arms.greedy", "greedy", "plain")
def greedy(subject: Subject, budget: Budget) -> Verdict:
    """Both arms give the same ids; where they part, it must be a near-tie.

    After the same tokens two tokens can both be greedy only if they are about equally likely. With
    log probabilities that is looked up: the arms' own values for the two tokens differ by no more
    than their values for equal tokens do. Without, partings are counted, and no more than a share
    of ``NEAR_TIES`` of the tokens may part (binomial test at ``budget.alpha``).
    """
    requests = _greedy_requests(subject, budget)
    plain = [msgspec.structs.replace(request, speculate=False) for request in requests]
    answers = list(zip(requests, subject.ask(requests), subject.ask(plain), strict=True))
    for request, one, other in answers:
        if problem := _other_end(one, other):
            return _differ(subject, request, problem, FaultClass.END)
    found = _Partings.among(answers)
    evidence = {"alpha": budget.alpha, "requests": len(requests), **found.evidence()}
    conclude = functools.partial(Verdict, check="arms.greedy", evidence=evidence)
    if found.at and found.known and found.widest > found.noise:
        request, one, other, at = found.at[found.gaps.index(found.widest)]
        problem = (
            f"token {at} is {one.tokens[at]}, without speculation {other.tokens[at]}, whose log "
            f"probability is {found.widest:.3g} away (equal tokens: at most {found.noise:.2g})"
        )
        return _differ(subject, request, problem, FaultClass.GREEDY)
    parted = f"the arms part {len(found.at)} times in {found.tokens} tokens"
    if not found.at:
        share = 1 - (1 - POWER) ** (1 / found.tokens)
        return conclude(
            status=Status.PASS,
            message=f"both arms give the same {found.tokens} ids on {len(requests)} requests",
            ruled_out=f"(power {POWER}) a share of {share:.2g} of the tokens is another one",
        )
    if found.known:
        return conclude(status=Status.PASS, message=f"{parted}, each time at a near-tie")
    p_value = float(stats.binom.sf(len(found.at) - 1, found.tokens, NEAR_TIES))
    if p_value < budget.alpha:
        message = (
            f"{parted}: near-ties in a share of {NEAR_TIES} would be fewer (p = {p_value:.2g})"
        )
        return conclude(status=Status.FAIL, message=message, fault_class=FaultClass.GREEDY)
    message = f"{parted}: near-ties or faults, which takes log probabilities or weights to tell"
    return conclude(status=Status.INCONCLUSIVE, message=message)


Answer = tuple[Request, Completion, Completion]  # with speculation, and without


@dataclass
class _Partings:
    """Where the arms give different ids after the same ones.

    Attributes
    ----------
    tokens : int
        Compared, up to each parting.
    noise : float
        Of log probabilities, in nats.
    at : list of (Request, Completion, Completion, int)
    gaps : list of float
        Between the log probabilities of the two tokens, where they are given.
    """

    tokens: int = 0
    noise: float = NOISE_FLOOR
    at: list[tuple[Request, Completion, Completion, int]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @classmethod
    def among(cls, answers: Sequence[Answer]) -> _Partings:
        """Compare token by token."""
        found = cls()
        for request, one, other in answers:
            same = _same(one, other)
            parts = same < len(one.tokens)
            found.tokens += same + parts
            if parts:
                found.at.append((request, one, other, same))
            if one.logprobs and other.logprobs:
                off = np.abs(np.subtract(one.logprobs, other.logprobs)[: same + parts])
                found.noise = max(found.noise, NOISE_MARGIN * float(off[:same].max(initial=0.0)))
                found.gaps += off[same:].tolist()
        return found

    @property
    def known(self) -> bool:
        """Whether all gaps are."""
        return len(self.gaps) == len(self.at)

    @property
    def widest(self) -> float:
        """Gap."""
        return max(self.gaps)

    def evidence(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "tokens": self.tokens,
            "partings": len(self.at),
            "gaps": self.gaps,
            "noise": self.noise,
        }


def _same(one: Completion, other: Completion) -> int:
    """How many tokens two outputs begin with alike."""
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    shorter = min(len(one.tokens), len(other.tokens))
    return next((i for i, (a, b) in pairs if a != b), shorter)


def _other_end(one: Completion, other: Completion) -> str:
    """In what the ends of two outputs differ that are equal as far as both go."""
    lengths = len(one.tokens), len(other.tokens)
    if _same(one, other) < min(lengths):
        return ""
    if lengths[0] != lengths[1]:
        return f"output has {lengths[0]} tokens, without speculation {lengths[1]}"
    if one.finish_reason != other.finish_reason:
        return (
            f"finish_reason is {one.finish_reason!r}, without speculation {other.finish_reason!r}"
        )
    return ""


def _greedy_requests(subject: Subject, budget: Budget) -> list[Request]:
    pair = subject.pair
    return [
        Request(
            prompt=make(pair, PROMPT, budget.seed + i),
            max_new_tokens=NEW_TOKENS,
            draft_tokens=k,
            logprobs="logprobs" in subject.decoder.capabilities,
        )
        for k in budget.draft_tokens
        for i in range(4 * budget.prompts)
        for make in (random_prompt, repetitive_prompt)
    ]


def _differ(subject: Subject, request: Request, problem: str, kind: FaultClass) -> Verdict:
    plain = msgspec.structs.replace(request, speculate=False)
    return Verdict(
        check="arms.greedy",
        status=Status.FAIL,
        message=f"{problem} (K={request.draft_tokens}, prompt {len(request.prompt)})",
        fault_class=kind,
        repro=repro(subject, [request, plain]),
    )


@check("arms.sampled", "sampling", "plain")
def sampled(subject: Subject, budget: Budget) -> Verdict:
    """Sampled output of the two arms is exchangeable: no feature of it bets on which is which.

    Features are counts of ids and of pairs of neighbours (hashed), repetitions, length, and the sum
    of the decoder's own log probabilities. ``PairedBets`` may stop after any batch of pairs; the
    two answers of a pair are to one request, each with a seed of its own.
    """
    names = _features(subject)
    few = min(FEWEST_PAIRS, budget.samples // LEAST_PER_PAIR)
    most = max(few, budget.samples // SAMPLES_PER_PAIR)
    smallest = smallest_drift(most, len(names), budget.alpha, POWER)
    if subject.pair.has_weights and subject.pair.target.num_parameters() > LARGE:
        raise Unsupported(
            "with the weights of so large a target distribution.evidence is the check"
        )
    bets = PairedBets(len(names))
    while bets.pairs < most and not bets.decision(budget.alpha):
        first = bets.pairs
        pairs = range(first, min(most, first + BATCH))
        one, other = (
            [_seen(c, names) for c in subject.ask(_sampled_requests(subject, budget, pairs, on))]
            for on in (True, False)
        )
        bets.update(np.subtract(one, other))
    evidence = {
        "alpha": budget.alpha,
        "pairs": bets.pairs,
        "log_wealth": bets.peak,
        "features": len(names),
        "clearest": names[bets.leader],
    }
    if bets.decision(budget.alpha):
        return Verdict(
            check="arms.sampled",
            status=Status.FAIL,
            message=f"output with speculation differs from output without: {names[bets.leader]} "
            f"(wealth e^{bets.peak:.1f} after {bets.pairs} pairs)",
            evidence=evidence,
        )
    if math.isinf(smallest):
        return Verdict(
            check="arms.sampled",
            status=Status.INCONCLUSIVE,
            message=f"{bets.pairs} pairs cannot show any difference: ask for more --samples",
            evidence=evidence,
        )
    return Verdict(
        check="arms.sampled",
        status=Status.PASS,
        message=f"{bets.pairs} pairs of answers do not tell which arm is which",
        evidence=evidence,
        ruled_out=f"(power {POWER}) a drift of {smallest:.2f} standard deviations in a feature",
    )


def _sampled_requests(
    subject: Subject, budget: Budget, pairs: range, speculate: bool
) -> list[Request]:
    declared = subject.decoder.capabilities
    return [
        Request(
            # Few prompts: after many different ones what is wrong would average out.
            prompt=random_prompt(subject.pair, PROMPT, budget.seed + i % PROMPTS),
            max_new_tokens=NEW_TOKENS,
            sampling=Sampling(temperature=TEMPERATURE),
            seed=budget.seed + 2 * i + speculate if "seed" in declared else None,
            speculate=speculate,
            draft_tokens=budget.draft_tokens[i % len(budget.draft_tokens)],
            logprobs="logprobs" in declared,
        )
        for i in pairs
    ]


def _features(subject: Subject) -> list[str]:
    """Names of what is looked at, in the order of ``_seen``."""
    buckets = min(BUCKETS, subject.pair.vocab_size)
    names = [f"ids that are {i} modulo {buckets}" for i in range(buckets)]
    names += [f"pairs of neighbours in bucket {i} of {buckets}" for i in range(buckets)]
    names += ["repetitions of the token before", "different ids", "length"]
    if "logprobs" in subject.decoder.capabilities:
        names.append("the sum of its own log probabilities")
    return names


def _seen(completion: Completion, names: Sequence[str]) -> NDArray[np.float64]:
    """The features of one output, [J] float64."""
    ids = np.array(completion.tokens)
    buckets = sum(name.startswith("ids that") for name in names)
    neighbours = (ids[:-1] * 31 + ids[1:] * 17) % buckets
    found: list[float] = [
        *np.bincount(ids % buckets, minlength=buckets),
        *np.bincount(neighbours, minlength=buckets),
        (ids[1:] == ids[:-1]).sum(),
        len(set(completion.tokens)),
        len(ids),
    ]
    if completion.logprobs is not None:
        found.append(sum(completion.logprobs))
    return np.array(found, dtype=np.float64)
