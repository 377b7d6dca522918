"""What a decoder counts and times of its own is what happened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import NOTHING_TO_ASK, Subject, check, repro
from harness.contract import Completion, Metrics, Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict

ROUNDING = 1e-6  # relative: quotients may be kept in single precision


@check("metrics.identities", "metrics")
def identities(subject: Subject, budget: Budget) -> Verdict:
    """Counts are those of the answer and its rounds, rates are their quotients.

    Greedy and sampled, with speculation and without, short prompts and long ones, outputs that
    end by length, EOS or stop sequence.

    Kills alone: rate_of_all_matches, chunks_as_tokens.
    """
    name = "metrics.identities"
    requests = [request for request in _spread(subject, budget) if subject.supports(request)]
    if not requests:
        raise Unsupported(NOTHING_TO_ASK)
    counted: set[str] = set()
    for request, completion in zip(requests, subject.ask(requests), strict=True):
        if problem := wrong_metrics(request, completion):
            return _fail(subject, name, request, completion, problem)
        counted |= {
            field
            for field in Metrics.__struct_fields__
            if getattr(completion.metrics, field) is not None
        }
    silent = [field for field in Metrics.__struct_fields__ if field not in counted]
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"the metrics of {len(requests)} answers agree with each other and the answers",
        ruled_out=f"{', '.join(sorted(counted))} that are not what they say"
        + (f" (never given: {', '.join(silent)})" if silent else ""),
        evidence={"requests": len(requests)},
    )


@check("metrics.wrong_drafts", "metrics", "greedy", "model_draft")
def wrong_drafts(subject: Subject, budget: Budget) -> Verdict:
    """A draft that is always wrong has the acceptance rate 0."""
    return _rate(subject, budget, "metrics.wrong_drafts", right=False)


@check("metrics.right_drafts", "metrics", "greedy", "model_draft")
def right_drafts(subject: Subject, budget: Budget) -> Verdict:
    """A draft that is always right has the acceptance rate 1."""
    return _rate(subject, budget, "metrics.right_drafts", right=True)


def _rate(subject: Subject, budget: Budget, name: str, right: bool) -> Verdict:
    """The reported rate, where all first positions of a round must be accepted, or none may."""
    requests = [
        Request(
            prompt=random_prompt(subject.pair, 4, budget.seed + seed),
            max_new_tokens=budget.new_tokens,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
        for seed in range(2 * budget.prompts)
    ]
    told, words = 0, "right" if right else "wrong"
    for request, completion in zip(requests, subject.ask(requests), strict=True):
        metrics = completion.metrics or Metrics()
        if agreement(subject, request, completion) != {right} or not metrics.drafted:
            continue
        told += 1
        # Drafts of the last round that max_new_tokens cuts off may count as not accepted.
        least = max(0, metrics.drafted - request.draft_tokens) if right else 0
        most = metrics.drafted if right else 0
        rate, accepted = metrics.acceptance_rate, metrics.accepted
        if rate is not None and not least <= round(rate * metrics.drafted, 3) <= most:
            problem = f"the acceptance rate is {rate:.6g}, and all drafts are {words}"
            return _fail(subject, name, request, completion, problem)
        if accepted is not None and not least <= accepted <= most:
            problem = f"{accepted} of {metrics.drafted} drafts count as accepted, all are {words}"
            return _fail(subject, name, request, completion, problem)
    if not told:
        better = "tiny-self" if right else "tiny-hostile"
        raise Unsupported(
            f"the draft of {subject.pair.name} is not always {words}: use --pair {better}"
        )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{told} answers whose drafts are always {words} say so",
        ruled_out="a rate over other positions than those that were accepted one after the other",
        evidence={"requests": told},
    )


def agreement(subject: Subject, request: Request, completion: Completion) -> set[bool]:
    """Whether draft and target have the same favourite after each prefix of a greedy output.

    Both values where they part in some places, or where noise decides.
    """
    pair, asked_for = subject.pair, completion.tokens[: request.max_new_tokens]
    of = [
        oracle.laws_along(model, request, asked_for, pair.vocab_size)[0].topk(2)
        for model in (pair.target, pair.draft)
    ]
    noise = greedy.NOISE_MARGIN * greedy.noise_of(pair)
    if any(bool((top.values[:, 0] - top.values[:, 1] < noise).any()) for top in of):
        return {True, False}
    return set((of[0].indices[:, 0] == of[1].indices[:, 0]).tolist())


def wrong_metrics(request: Request, completion: Completion) -> str:
    """What is wrong with the metrics of an answer, empty if nothing is."""
    m, rounds, tokens = completion.metrics, completion.rounds, len(completion.tokens)
    if m is None:
        return "metrics are declared, and none are reported"
    for field in Metrics.__struct_fields__:
        value = getattr(m, field)
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            return f"{field} is {value!r}"
    return next(filter(None, _broken(m, request, rounds, tokens)), "")


def _broken(m: Metrics, request: Request, rounds: Any, tokens: int) -> Iterator[str]:
    """Identities that do not hold, one sentence each, empty for those that do."""

    def equal(field: str, expected: float | None, words: str) -> str:
        value = getattr(m, field)
        if value is None or expected is None:
            return ""
        if math.isclose(value, expected, rel_tol=0 if isinstance(expected, int) else ROUNDING):
            return ""
        return f"{field} is {value:.6g}, {words} {expected:.6g}"

    def most(field: str, bound: int | None, words: str) -> str:
        value = getattr(m, field)
        if value is None or bound is None or value <= bound:
            return ""
        return f"{field} is {value}, {words} {bound}"

    yield equal("tokens", tokens, "the answer has")
    if rounds is not None:
        yield equal("drafted", sum(r.drafted for r in rounds), "the rounds sum to")
        yield equal("accepted", sum(r.accepted for r in rounds), "the rounds sum to")
        yield equal("target_calls", len(rounds), "the rounds are")
    yield most("target_calls", tokens, "each gives a token, and there are")
    yield most("accepted", m.drafted, "drafted are")
    if m.accepted is not None and m.target_calls is not None:
        given = m.accepted + m.target_calls
        yield f"{given} accepted tokens and target calls give {tokens}" if given < tokens else ""
    drafted, accepted = m.drafted, m.accepted
    if rounds is not None:
        drafted, accepted = (sum(getattr(r, f) for r in rounds) for f in ("drafted", "accepted"))
    if accepted is not None and drafted is not None:
        rate = accepted / drafted if drafted else 0.0
        yield equal("acceptance_rate", rate, "accepted / drafted is")
    if m.seconds:
        yield equal("tokens_per_second", tokens / m.seconds, "tokens / seconds is")
        parts = sum(filter(None, (m.prompt_seconds, m.draft_seconds, m.verify_seconds)))
        longer = parts > m.seconds * (1 + ROUNDING)
        yield f"the parts are {parts:.6g} seconds, all is {m.seconds:.6g}" if longer else ""


def _spread(subject: Subject, budget: Budget) -> Iterator[Request]:
    pair = subject.pair
    some = tuple(range(0, pair.vocab_size, max(1, pair.vocab_size // 6)))
    ends: Sequence[dict[str, Any]] = ({}, {"eos": some}, {"stop": tuple((t,) for t in some)})
    long = min(60, pair.context_length - budget.new_tokens)
    for k in budget.draft_tokens:
        for temperature in (0.0, 1.0):
            for n, length in enumerate((3, long)):
                for end in ends:
                    request = Request(
                        prompt=random_prompt(pair, length, budget.seed + k + n),
                        max_new_tokens=budget.new_tokens,
                        draft_tokens=k,
                        sampling=Sampling(temperature=temperature),
                        **end,
                    )
                    yield request
                    yield msgspec.structs.replace(request, speculate=False)


def _fail(
    subject: Subject, name: str, request: Request, completion: Completion, problem: str
) -> Verdict:
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=problem,
        fault_class=FaultClass.METRICS,
        evidence={
            "metrics": msgspec.to_builtins(completion.metrics),
            "rounds": [[r.drafted, r.accepted] for r in completion.rounds or []],
            "tokens": len(completion.tokens),
        },
        repro=repro(subject, [request]),
    )
