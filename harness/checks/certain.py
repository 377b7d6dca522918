"""What is certain of every single output, greedy or sampled: no statistics.

Greedy ids are plain decoding's; no token is impossible; the output ends where it must; its rounds
add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from harness import oracle
from harness.checks import greedy
from harness.checks.subject import Subject
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.scoring import Answer
from harness.stats.trials import wrong_rounds
from harness.verdict import FaultClass, Status, Verdict

CLASSES = {
    "token": FaultClass.GREEDY,
    "end": FaultClass.END,
    "support": FaultClass.PARAMETERS,
    "rounds": FaultClass.METRICS,
    "seed": FaultClass.RANDOMNESS,
}


@dataclass(frozen=True)
class Wrong:
    """An answer that cannot be right.

    Attributes
    ----------
    kind : str
        One of ``CLASSES``; or ``refused``, where there was no answer.
    says : str
        What is wrong, in words.
    """

    kind: str
    says: str
    request: Request
    completion: Completion | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def wrong(subject: Subject, request: Request, completion: Completion) -> Wrong | None:
    """The first thing that is wrong with an answer, None if it may be right."""
    if found := wrong_ids(subject.pair, request, completion):
        return found
    if request.speculate and "rounds" in subject.decoder.capabilities:
        rounds = completion.rounds
        if problem := wrong_rounds(rounds, len(completion.tokens), request.draft_tokens):
            counts = {"rounds": [[r.drafted, r.accepted] for r in rounds or []]}
            return Wrong("rounds", problem, request, completion, counts)
    return None


def wrong_ids(pair: ModelPair, request: Request, completion: Completion) -> Wrong | None:
    """The same of its tokens and their end alone."""
    if request.sampling.greedy:
        problem, evidence = greedy.problem_of(pair, request, completion)
        kind = "token" if "position" in evidence else "end"
    else:
        problem, evidence = _impossible(pair, request, completion), {}
        kind = "support"
        if not problem:
            problem, kind = greedy.wrong_end(request, completion), "end"
    return Wrong(kind, problem, request, completion, evidence) if problem else None


def _impossible(pair: ModelPair, request: Request, completion: Completion) -> str:
    """Names the first token of probability 0; one at the border of a filter is no proof."""
    asked_for = completion.tokens[: request.max_new_tokens]
    for rows in oracle.score(pair, [Answer(request, asked_for)], draft=False):
        assert rows.near is not None
        found = ((rows.here.p.squeeze(1) == 0) & ~rows.near).nonzero().flatten().tolist()
        if found:
            return f"token {found[0]} is {asked_for[found[0]]}, whose probability is 0"
    return ""


def verdict_on(subject: Subject, name: str, found: Wrong) -> Verdict:
    """FAIL; ERROR where there was no answer, or where the plain arm is wrong in the same way."""
    if found.completion is None:
        return Verdict(check=name, status=Status.ERROR, message=found.says)
    if found.kind in ("token", "end") and found.request.sampling.greedy:
        verdict = greedy.judge(subject, name, found.request, found.completion)
        return replace(verdict, fault_class=verdict.fault_class or CLASSES[found.kind])
    verdict = Verdict(
        check=name,
        status=Status.FAIL,
        message=found.says,
        fault_class=CLASSES[found.kind],
        evidence=found.evidence | {"got": found.completion.tokens},
    )
    if "plain" not in subject.decoder.capabilities or not found.request.speculate:
        return verdict
    plain = replace(found.request, speculate=False)
    if (own := wrong(subject, plain, subject.ask_one(plain))) and own.kind == found.kind:
        message = f"{found.says}; its own plain decoding is wrong too: speculation is not to blame"
        return replace(
            verdict, status=Status.ERROR, message=message, fault_class=FaultClass.CONTRACT
        )
    return verdict
