"""Greedy output is plain decoding's, token for token.

The oracle says it without decoding anything: an output is what plain decoding gives exactly if
each of its tokens is the target's argmax after the tokens before it. The decoder's own plain arm
is the control: if that one fails, the oracle does not describe this engine, and speculation is
not to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harness import oracle
from harness.checks import diagnosis, minimise, triage
from harness.checks.budget import Budget
from harness.checks.prompts import lengths, random_prompt, repetitive_prompt
from harness.checks.reproduce import Call
from harness.checks.subject import NOTHING_TO_ASK, Refused, Subject, check, repro
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.autoregressive import finished
from reference_impl.cache import sliding_window

ALONE = 3  # of the requests that are decoded together are decoded by themselves as well
NOISE_MARGIN = 4.0  # the noise is the largest of a sample, and a decoder's kernels have theirs


def near_tie(pair: ModelPair, divergence: oracle.Divergence, spread: float = 0.0) -> bool:
    """Whether the two logits are nearer than this model's numerical noise.

    The noise is that of a text of this model, or the spread between ways of computing this very
    gap if that is more. Where there is none an exact tie is no excuse: it must break as plain
    decoding breaks it.
    """
    return divergence.gap < NOISE_MARGIN * max(noise_of(pair), spread)


_noises: dict[str, float] = {}


def noise_of(pair: ModelPair) -> float:
    """``oracle.noise`` of a pair, measured once."""
    key = pair.fingerprint()
    if key not in _noises:
        _noises[key] = oracle.noise(pair, random_prompt(pair, 8, 0))
    return _noises[key]


def wrong_end(request: Request, completion: Completion) -> str:
    """What is wrong with where an output ends, empty if nothing is."""
    tokens = completion.tokens
    for n in range(1, len(tokens)):
        if reason := finished(tokens[:n], request):
            return f"output goes on after {reason} at token {n} of {len(tokens)}"
    reason = finished(tokens, request)
    if reason is None:
        return f"output ends after {len(tokens)} tokens for no reason"
    if reason != completion.finish_reason:
        return f"finish_reason is {completion.finish_reason!r}, expected {reason!r}"
    return ""


def judge(subject: Subject, name: str, request: Request, completion: Completion) -> Verdict:
    """Judge one greedy completion against the oracle; ERROR where the plain arm fails as well."""
    problem, evidence = problem_of(subject.pair, request, completion)
    if not problem:
        return Verdict(
            check=name, status=Status.PASS, message="equal to plain decoding", evidence=evidence
        )
    status, blame = Status.FAIL, ""
    if "plain" in subject.decoder.capabilities and request.speculate:
        plain = msgspec.structs.replace(request, speculate=False)
        own = subject.anew().ask_one(plain)  # which nothing asked before can have spoiled
        evidence["plain_tokens"] = own.tokens
        if problem_of(subject.pair, plain, own)[0]:
            status = Status.ERROR
            blame = (
                "; its own plain decoding differs from the target too: speculation is not to blame"
            )
    kind, likely = None, ""
    if status is Status.FAIL:
        kind = FaultClass.END
        if "position" in evidence:
            kind, likely = diagnosis.likely_fault(
                subject, request, completion, evidence["position"]
            )
    return Verdict(
        check=name,
        status=status,
        message=problem + blame,
        likely_fault=likely,
        fault_class=kind,
        evidence=evidence | {"got": completion.tokens},
        repro=repro(subject, [request]),
    )


def problem_of(
    pair: ModelPair, request: Request, completion: Completion
) -> tuple[str, dict[str, Any]]:
    """What is wrong with a greedy completion, empty if nothing is, and the evidence.

    Divergences that are near-ties are no problem; they are listed under ``near_ties``.
    """
    evidence: dict[str, Any] = {}
    ties = []
    asked_for = completion.tokens[: request.max_new_tokens]  # what is beyond is a wrong end
    for found in oracle.greedy_divergences(pair, request, asked_for):
        gaps = triage.gaps(pair, request, asked_for, found)
        if not near_tie(pair, found, triage.spread(gaps)):
            evidence |= {"position": found.position, "expected": found.expected, "gap": found.gap}
            evidence |= {"gaps": gaps, "noise": max(noise_of(pair), triage.spread(gaps))}
            return (
                f"token {found.position} is {found.got}, plain decoding gives {found.expected} "
                f"(logit gap {found.gap:.3g}; K={request.draft_tokens}, "
                f"prompt {len(request.prompt)})",
                evidence,
            )
        ties.append(
            f"token {found.position}: {found.got} for {found.expected}, gap {found.gap:.2g}"
        )
    if ties:
        evidence["near_ties"] = ties
    return wrong_end(request, completion), evidence


def in_short(subject: Subject, calls: Sequence[Call], verdict: Verdict) -> Verdict:
    """The same FAIL shown by as little as possible: fewer calls and rows, smaller requests."""
    if verdict.status is not Status.FAIL:
        return verdict
    diverges = "position" in verdict.evidence

    def offender(on: Subject, calls: Sequence[Call]) -> tuple[Request, Completion] | None:
        """The first row of the last call that is wrong in the same way."""
        try:
            answers = [on.make(call) for call in calls][-1]
        except Refused:
            return None
        for request, completion in zip(calls[-1].requests, answers, strict=True):
            if request.sampling.greedy:
                problem, evidence = problem_of(subject.pair, request, completion)
                if problem and ("position" in evidence) == diverges:
                    return request, completion
        return None

    def judged(on: Subject, found: tuple[Request, Completion]) -> Verdict:
        # The longer answer says more of what is wrong than the shortest.
        likely, kind = verdict.likely_fault, verdict.fault_class
        again = judge(on, verdict.check, *found)
        return msgspec.structs.replace(again, likely_fault=likely, fault_class=kind)

    return minimise.in_short(subject, calls, verdict, offender, judged)


def judge_all(
    subject: Subject,
    name: str,
    requests: Sequence[Request],
    ruled_out: str,
    together: bool = False,
) -> Verdict:
    """Judge greedy requests one at a time; the first that is wrong decides.

    Parameters
    ----------
    together : bool
        Decode all of them in one call, which costs less, and only some one at a time.
    """
    supported = [request for request in requests if subject.supports(request)]
    needed = {name for request in requests for name in request.capabilities()}
    if missing := sorted(needed - subject.decoder.capabilities):
        ruled_out += f" (not asked for, being undeclared: {', '.join(missing)})"
    if not supported:
        raise Unsupported(NOTHING_TO_ASK)
    alone = supported[:: max(1, len(supported) // ALONE)] if together else supported
    calls = [Call(tuple(supported))] if together else []
    calls += [Call((request,)) for request in alone]
    ties = []
    for n, call in enumerate(calls, start=1):
        for request, completion in zip(call.requests, subject.make(call), strict=True):
            verdict = judge(subject, name, request, completion)
            if not verdict.passed:
                return in_short(subject, calls[:n], verdict)
            ties += verdict.evidence.get("near_ties", [])
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(supported)} requests equal plain decoding token for token",
        ruled_out=ruled_out,
        evidence={"requests": len(supported), **({"near_ties": ties} if ties else {})},
    )


@check("greedy.identity", "greedy")
def identity(subject: Subject, budget: Budget) -> Verdict:
    """Greedy ids equal plain decoding's, over K, prompt length and kind of prompt."""
    pair = subject.pair
    window = sliding_window(pair.target.config.get_text_config())
    requests = []
    for k in budget.draft_tokens:
        most = pair.context_length - budget.new_tokens
        for length in lengths(pair, k, most, window):
            for seed in range(budget.prompts):
                make = repetitive_prompt if seed % 2 else random_prompt
                prompt = make(pair, length, budget.seed + seed)
                requests.append(
                    Request(prompt=prompt, max_new_tokens=budget.new_tokens, draft_tokens=k)
                )
    return judge_all(
        subject,
        "greedy.identity",
        requests,
        f"any differing token in {budget.new_tokens} over K {budget.draft_tokens[0]}.."
        f"{budget.draft_tokens[-1]}, prompts of 1 to {max(len(r.prompt) for r in requests)} ids",
    )


@check("greedy.ties", "greedy")
def ties(subject: Subject, budget: Budget) -> Verdict:
    """Where two best logits tie exactly the token is the one that plain decoding takes.

    Kills alone: last_maximum.
    """
    name, pair = "greedy.ties", subject.pair
    requests = [
        Request(
            prompt=random_prompt(pair, length, budget.seed + seed),
            max_new_tokens=budget.new_tokens,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
        for seed in range(2 * budget.prompts)
        for length in (1, 9)
    ]
    path = oracle.greedy_path(pair, requests[0].prompt, budget.new_tokens)
    scores, _ = oracle.laws_along(pair.target, requests[0], path, pair.vocab_size)
    first, second = scores.topk(2).values.unbind(1)
    if not (first == second).any():
        raise Unsupported(f"the best logits of {pair.name} do not tie: use --pair tiny-ties")
    ruled_out = "an exact tie broken otherwise by a block than by single tokens"
    return judge_all(subject, name, requests, ruled_out, together=True)
