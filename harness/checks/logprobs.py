"""Log probabilities are those of the target's law, for every token that was emitted.

Greedy ones are at temperature 1: a law that is all on one token has nothing to say.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.reproduce import repro
from harness.checks.subject import NOTHING_TO_ASK, Malformed, Refused, Subject, check
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair
from harness.stats.rows import Rows
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.sampling import warp

SETTINGS: Sequence[dict[str, Any]] = (
    {},
    {"repetition_penalty": 1.5, "presence_penalty": 0.5},
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 0.8, "repetition_penalty": 1.5, "frequency_penalty": 0.5},
)
OUTPUTS = 256  # from one context, whose log probabilities are added up


class Value(NamedTuple):
    """The log probability of one emitted token: the decoder's own, and the target's."""

    request: Request
    position: int
    own: float
    expected: float
    tolerance: float

    @property
    def excess(self) -> float:
        """How much farther apart they are than noise explains."""
        return abs(self.own - self.expected) - self.tolerance

    def __str__(self) -> str:
        return (
            f"the log probability of token {self.position} is {self.own:.6g}, the target's is "
            f"{self.expected:.6g} (noise up to {self.tolerance:.2g})"
        )


@check("logprobs.values", "logprobs")
def values(subject: Subject, budget: Budget) -> Verdict:
    """One for every token, and the target's after the tokens before it.

    Greedy and sampled, under filters and penalties, ended by length, EOS and stop sequence.

    Kills alone: logprobs_untempered.
    """
    name, tokens, widest = "logprobs.values", 0, 0.0
    for requests in _settings(subject, budget):
        try:
            found = list(_values(subject.pair, requests, subject.ask(requests)))
        except Malformed as error:
            return _withheld(subject, name, error)
        if not found:  # noise decides everywhere what the filter keeps
            continue
        worst = max(found, key=lambda value: value.excess)
        if worst.excess > 0:
            return _off(subject, name, worst)
        tokens += len(found)
        widest = max(widest, *(value.tolerance for value in found))
    if not tokens:
        raise Unsupported(NOTHING_TO_ASK)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"the log probabilities of {tokens} tokens are the target's",
        ruled_out=f"a log probability that is missing, or off by more than {widest:.2g} nats",
        evidence={"tokens": tokens, "tolerance": widest},
    )


@check("logprobs.arms", "logprobs", "plain", "greedy")
def arms(subject: Subject, budget: Budget) -> Verdict:
    """The same greedy ids have the same log probabilities with speculation and without."""
    name, compared, widest = "logprobs.arms", 0, 0.0
    requests = [r for r in next(iter(_settings(subject, budget))) if r.sampling.greedy]
    plain = [msgspec.structs.replace(request, speculate=False) for request in requests]
    control = subject.ask(plain)
    try:
        completions = subject.ask(requests)
    except Malformed as error:
        return _withheld(subject, name, error)
    for request, one, other in zip(requests, completions, control, strict=True):
        noise = 2 * tolerance(subject.pair, request.sampling, 0.0)  # of either arm
        assert one.logprobs is not None
        assert other.logprobs is not None
        pairs = zip(one.tokens, other.tokens, one.logprobs, other.logprobs, strict=False)
        for i, (token, same, own, expected) in enumerate(pairs):
            if token != same:  # what follows has another context
                break
            if abs(own - expected) > noise:
                return Verdict(
                    check=name,
                    status=Status.FAIL,
                    message=f"the log probability of token {i} is {own:.6g}, without speculation "
                    f"it is {expected:.6g} (noise up to {noise:.2g})",
                    fault_class=FaultClass.LOGPROBS,
                    evidence={"got": one.logprobs, "plain": other.logprobs},
                    repro=repro(subject, [request]),
                )
            compared, widest = compared + 1, max(widest, noise)
    if not compared:
        raise Unsupported(NOTHING_TO_ASK)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{compared} log probabilities are the same without speculation",
        ruled_out=f"a difference of more than {widest:.2g} nats",
        evidence={"tokens": compared},
    )


@check("logprobs.mass", "logprobs", "sampling")
def mass(subject: Subject, budget: Budget) -> Verdict:
    """After the same tokens, the probabilities of all tokens that were seen add up to 1 at most.

    And one token has one probability there, whatever it was: draft, recovered or bonus.
    """
    name = "logprobs.mass"
    request = Request(
        prompt=random_prompt(subject.pair, 5, budget.seed),
        max_new_tokens=4,
        draft_tokens=max(k for k in budget.draft_tokens if k <= 4 or k == budget.draft_tokens[0]),
        sampling=Sampling(temperature=1.5),
        logprobs=True,
    )
    problem, contexts = _overfull(subject, request)
    if not problem:
        return Verdict(
            check=name,
            status=Status.PASS,
            message=f"probabilities add up to 1 at most in each of {contexts} contexts",
            ruled_out="log probabilities that are those of no law, or of several",
            evidence={"outputs": OUTPUTS, "contexts": contexts},
        )
    status = Status.FAIL
    if "plain" in subject.decoder.capabilities:
        plain = msgspec.structs.replace(request, speculate=False)
        if _overfull(subject, plain)[0]:
            status = Status.ERROR
            problem += "; its plain decoding's do so too: speculation is not to blame"
    return Verdict(check=name, status=status, message=problem, fault_class=FaultClass.LOGPROBS)


def _overfull(subject: Subject, request: Request) -> tuple[str, int]:
    """A context whose probabilities are too many or too much, and how many there are."""
    seen: dict[tuple[int, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for completion in subject.ask([request] * OUTPUTS):
        assert completion.logprobs is not None
        for i, token in enumerate(completion.tokens):
            seen[tuple(completion.tokens[:i])][token].append(completion.logprobs[i])
    noise = 2 * tolerance(subject.pair, request.sampling, 0.0)
    for context, tokens in seen.items():
        for token, given in tokens.items():
            if max(given) - min(given) > noise:
                few = f"{min(given):.6g} and {max(given):.6g}"
                return f"token {token} has log probabilities {few} after {list(context)}", len(seen)
        total = math.fsum(math.exp(max(given)) for given in tokens.values())
        if total > math.exp(noise):
            problem = f"the probabilities of {len(tokens)} tokens after {list(context)} add up to"
            return f"{problem} {total:.6g}", len(seen)
    return "", len(seen)


def _settings(subject: Subject, budget: Budget) -> Iterator[list[Request]]:
    """Batches of requests, one for each of ``SETTINGS`` that the decoder takes."""
    some = tuple(range(0, subject.pair.vocab_size, max(1, subject.pair.vocab_size // 6)))
    ends: list[dict[str, Any]] = [{}, {"eos": some}, {"stop": tuple((t,) for t in some)}]
    for number, parameters in enumerate(SETTINGS):
        requests = [
            Request(
                prompt=random_prompt(subject.pair, 4 + seed, budget.seed + 7 * number + seed),
                max_new_tokens=budget.new_tokens,
                draft_tokens=k,
                sampling=Sampling(**parameters),
                logprobs=True,
                **end,
            )
            for k in budget.draft_tokens
            for seed in range(budget.prompts)
            for end in ends
        ]
        if supported := [request for request in requests if subject.supports(request)]:
            yield supported


def _values(
    pair: ModelPair, requests: Sequence[Request], completions: Sequence[Completion]
) -> Iterator[Value]:
    """Every emitted token's, but where noise decides what a filter keeps."""
    answers = [
        oracle.Answer(at_temperature(request), completion.tokens, completion.logprobs)
        for request, completion in zip(requests, completions, strict=True)
    ]
    done = [0] * len(answers)
    for rows in oracle.score(pair, answers, draft=False):
        assert rows.scores is not None
        assert rows.answer is not None
        assert rows.own_logprobs is not None
        largest = float(rows.scores[rows.scores.isfinite()].abs().max())
        noise = tolerance(pair, requests[0].sampling, largest)
        columns = (rows.answer, rows.own_logprobs, rows.here.log_p.squeeze(1), clear(rows, noise))
        for answer, own, expected, kept in zip(*(c.tolist() for c in columns), strict=True):
            if kept and expected > -math.inf:  # another id is not for this check
                yield Value(requests[answer], done[answer], own, expected, noise)
            done[answer] += 1


def at_temperature(request: Request) -> Request:
    """The request whose law a log probability is of: at temperature 1 where it is greedy."""
    if not request.sampling.greedy:
        return request
    warm = msgspec.structs.replace(request.sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    return msgspec.structs.replace(request, sampling=warm)


def tolerance(pair: ModelPair, sampling: Sampling, largest: float) -> float:
    """How far noise may move a log probability, in nats.

    Its logit and the logarithm of the sum each move by what the gap of two logits does, or by the
    rounding of the largest one; a temperature below 1 and a repetition penalty stretch that.
    """
    rounding = torch.finfo(pair.target.dtype).eps * largest
    stretch = max(1.0, sampling.repetition_penalty) / min(1.0, sampling.temperature or 1.0)
    return 2 * greedy.NOISE_MARGIN * max(greedy.noise_of(pair), rounding) * stretch


def clear(rows: Rows, margin: float) -> Tensor:
    """Tokens [n] whose filters keep the same ids if logits and probabilities move by ``margin``."""
    scores, parameters = rows.scores, rows.parameters
    assert scores is not None
    assert parameters is not None
    if not parameters.filtered:
        return torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    # Neighbours in rank move against each other, so that any two that are near change places.
    against = margin * (1 - 2 * (scores.argsort(-1).argsort(-1) % 2))
    kept = []
    for move in (1, -1):
        top_p = torch.where(parameters.top_p < 1, parameters.top_p + move * margin, 1.0)
        min_p = parameters.min_p * (1 + move * margin)
        moved = parameters.replaced(top_p=top_p, min_p=min_p)
        kept.append(warp(scores + move * against, moved).isfinite())
    return (kept[0] == kept[1]).all(-1)


def _off(subject: Subject, name: str, worst: Value) -> Verdict:
    """FAIL; ERROR where the plain arm's log probabilities are no better."""
    status, message = Status.FAIL, str(worst)
    evidence: dict[str, Any] = {"position": worst.position, "got": worst.own}
    evidence |= {"expected": worst.expected, "tolerance": worst.tolerance}
    if "plain" in subject.decoder.capabilities:
        plain = [msgspec.structs.replace(worst.request, speculate=False)]
        own = max(_values(subject.pair, plain, subject.ask(plain)), key=lambda v: v.excess)
        evidence["plain_is_off_by"] = abs(own.own - own.expected)
        if own.excess > 0:
            status = Status.ERROR
            message += "; its plain decoding's are off too: speculation is not to blame"
    return Verdict(
        check=name,
        status=status,
        message=message,
        fault_class=FaultClass.LOGPROBS,
        evidence=evidence,
        repro=repro(subject, [worst.request]),
    )


def _withheld(subject: Subject, name: str, error: Refused) -> Verdict:
    """FAIL where the ids alone are well-formed, and plain decoding's log probabilities are."""
    silent = [msgspec.structs.replace(request, logprobs=False) for request in error.requests]
    plain = [msgspec.structs.replace(request, speculate=False) for request in error.requests]
    try:
        subject.ask(silent)
        if "plain" not in subject.decoder.capabilities:
            raise error
        subject.ask(plain)
    except Refused:
        raise error from None
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=f"{error}; without speculation they are well-formed",
        fault_class=FaultClass.LOGPROBS,
        repro=repro(subject, error.requests),
    )
