"""Where output ends: EOS, stop sequences, length, at every offset of a block.

The tokens that plain decoding emits are declared to be ends, one after the other. So an end comes
up as the first token, as an accepted draft, as the token recovered after a rejection and as the
bonus token after a fully accepted block; where rounds are reported the evidence counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.diagnosis import place_of
from harness.checks.minimise import may_be_blamed
from harness.checks.prompts import looping_prompt, random_prompt
from harness.checks.reproduce import Call
from harness.checks.subject import (
    NOTHING_TO_ASK,
    Refused,
    Subject,
    check,
    only_without_speculation,
)
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.autoregressive import finished

LONGEST_CONTEXT = 2048  # that is filled up: beyond it is a matter of cost, not of kind
ALONE = 8  # requests that are decoded by themselves as well


class Case(NamedTuple):
    """A greedy request, and the text that plain decoding would go on with if nothing ended it."""

    request: Request
    path: Sequence[int] = ()

    def but(self, **changes: Any) -> Case:
        """The same with other ends."""
        return Case(msgspec.structs.replace(self.request, **changes), self.path)

    def expected(self) -> Completion | None:
        """The answer, where the path says it."""
        if self.request.sampling == Sampling():
            for n in range(1, len(self.path) + 1):
                if reason := finished(self.path[:n], self.request):
                    return Completion(tokens=list(self.path[:n]), finish_reason=reason)
        return None


@check("stopping.eos", "greedy", "eos")
def eos(subject: Subject, budget: Budget) -> Verdict:
    """EOS at every offset of two blocks, alone and among several EOS ids."""
    cases = [
        case.but(eos=ids)
        for case in _cases(subject.pair, budget)
        for offset, token in enumerate(case.path)
        for ids in ((token,), (*case.path[offset + 1 : offset + 3], token))
    ]
    ruled_out = "an EOS that is missed, left out of the output, or found too early"
    return _judge(subject, "stopping.eos", cases, ruled_out)


@check("stopping.length", "greedy")
def length(subject: Subject, budget: Budget) -> Verdict:
    """max_new_tokens at every offset of two blocks."""
    cases = [
        case.but(max_new_tokens=n)
        for case in _cases(subject.pair, budget)
        for n in range(1, len(case.path) + 1)
    ]
    return _judge(subject, "stopping.length", cases, "a token too many or too few")


@check("stopping.stop", "greedy", "stop")
def stop(subject: Subject, budget: Budget) -> Verdict:
    """Stop sequences of 1 to 3 tokens at every offset, so that some begin in one block and end in
    the next, alone and among several; and those that begin in the prompt, which are none.

    Kills alone: stop_in_prompt.
    """
    cases = []
    for case in _cases(subject.pair, budget):
        prompt, path = case.request.prompt, case.path
        in_prompt = (*prompt[-2:], path[0]), (prompt[-1], *path[:2])
        cases += [case.but(stop=in_prompt)]
        for offset in range(len(path)):
            widths = [tuple(path[offset : offset + n]) for n in (1, 2, 3)]
            cases += [case.but(stop=(width,)) for width in widths]
            cases += [case.but(stop=(*in_prompt, widths[1]))]
    ruled_out = "a stop sequence of 1 to 3 tokens that is missed, found too early, or in the prompt"
    return _judge(subject, "stopping.stop", cases, ruled_out)


@check("stopping.priority", "greedy")
def priority(subject: Subject, budget: Budget) -> Verdict:
    """Ends that fall on the same token: EOS goes before stop sequence, and that before length."""
    cases = []
    for case in _cases(subject.pair, budget):
        for offset, token in enumerate(case.path):
            ends = {"eos": (token,), "stop": (tuple(case.path[max(0, offset - 1) : offset + 1]),)}
            cases += [case.but(max_new_tokens=offset + 1, **{end: ends[end]}) for end in ends]
            cases += [case.but(**ends), case.but(max_new_tokens=offset + 1, **ends)]
    ruled_out = "a finish_reason that is not the first of eos, stop and length that holds"
    return _judge(subject, "stopping.priority", cases, ruled_out)


@check("stopping.min_new_tokens", "greedy", "eos", "min_new_tokens")
def min_new_tokens(subject: Subject, budget: Budget) -> Verdict:
    """Plain decoding's EOS is allowed just before min_new_tokens, at it, and well before it."""
    cases = [
        case.but(eos=(token,), sampling=Sampling(min_new_tokens=max(1, offset + more)))
        for case in _cases(subject.pair, budget)
        for offset, token in enumerate(case.path[: case.request.draft_tokens + 3])
        for more in (0, 1, 3)
    ]
    ruled_out = "an EOS that comes before min_new_tokens, or is forbidden for a token too many"
    return _judge(subject, "stopping.min_new_tokens", cases, ruled_out)


@check("stopping.context", "greedy")
def context(subject: Subject, budget: Budget) -> Verdict:
    """Prompt and output fill the context to its last token, and K reaches beyond it.

    Kills alone: context_overrun_subtle.
    """
    name, pair = "stopping.context", subject.pair
    if pair.context_length > LONGEST_CONTEXT:
        raise Unsupported(
            f"a context of {pair.context_length} tokens is too long to fill: use --pair tiny"
        )
    cases = [
        Case(
            Request(
                prompt=random_prompt(pair, pair.context_length - n, budget.seed + seed),
                max_new_tokens=n,
                draft_tokens=k,
            )
        )
        for k in (*budget.draft_tokens, pair.context_length)
        for seed in range(budget.prompts)
        for n in sorted({1, 2, min(k, 8), min(k, 8) + 1, min(k, 8) + 2, 24})
    ]
    ruled_out = f"another token, or another end, where the context of {pair.context_length} is full"
    return _judge(subject, name, cases, ruled_out, FaultClass.EDGE)


def _cases(pair: ModelPair, budget: Budget) -> Iterator[Case]:
    """For every K, some prompts and what plain decoding says over two blocks and a little more."""
    longest = 2 * max(budget.draft_tokens) + 6
    prompts = [random_prompt(pair, 4 + i, budget.seed + i) for i in range(budget.prompts)]
    prompts.append(looping_prompt(pair, longest, budget.seed))
    paths = {prompt: oracle.greedy_path(pair, prompt, longest) for prompt in prompts}
    for k in budget.draft_tokens:
        for prompt, path in paths.items():
            n = 2 * k + 6
            yield Case(Request(prompt=prompt, max_new_tokens=n, draft_tokens=k), path[:n])


def _judge(
    subject: Subject,
    name: str,
    cases: Sequence[Case],
    ruled_out: str,
    kind: FaultClass = FaultClass.END,
) -> Verdict:
    """Judge some requests alone, and then all of them together.

    Those whose first token is the end come last: a decoder that gives an empty answer to them has
    given the others something to be judged by.
    """
    supported = [case for case in cases if subject.supports(case.request)]
    needed = {name for case in cases for name in case.request.capabilities()}
    if missing := sorted(needed - subject.decoder.capabilities):
        ruled_out += f" (not asked for, being undeclared: {', '.join(missing)})"
    if not supported:
        raise Unsupported(NOTHING_TO_ASK)
    at_once = [case for case in supported if _ends_at_once(case)]
    later = [case for case in supported if not _ends_at_once(case)]
    alone = [[case] for case in later[:: max(1, len(later) // ALONE)]]
    roles: Counter[str] = Counter()
    calls: list[Call] = []
    for batch in filter(None, [*alone, later, at_once]):
        calls.append(Call(tuple(case.request for case in batch)))
        try:
            answers = subject.make(calls[-1])
        except Refused as error:
            return only_without_speculation(subject, name, error, kind)
        for case, completion in zip(batch, answers, strict=True):
            verdict = _verdict(subject, name, case, completion)
            if verdict is not None:
                return _blamed(subject, case, greedy.in_short(subject, calls, verdict), kind)
            if completion.rounds and completion.finish_reason != "length":
                roles[role_of_last(completion)] += 1
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(supported)} outputs end where plain decoding's do",
        ruled_out=ruled_out,
        evidence={"requests": len(supported), **({"ends_came_as": dict(roles)} if roles else {})},
    )


def _ends_at_once(case: Case) -> bool:
    expected = case.expected()
    return expected is not None and len(expected.tokens) == 1


def _verdict(subject: Subject, name: str, case: Case, completion: Completion) -> Verdict | None:
    """What is wrong with an answer, None if nothing is."""
    expected = case.expected()
    answer = completion.tokens, completion.finish_reason
    if expected is not None and answer == (expected.tokens, expected.finish_reason):
        return None
    verdict = greedy.judge(subject, name, case.request, completion)
    return None if verdict.passed else verdict


def _blamed(subject: Subject, case: Case, verdict: Verdict, kind: FaultClass) -> Verdict:
    """Name the end as what is wrong, or the full context, if the request is right without it."""
    told = (FaultClass.BATCH, FaultClass.CACHE)
    if not may_be_blamed(verdict) or verdict.fault_class in told:
        return verdict
    if "position" in verdict.evidence:
        bare = case.but(eos=(), stop=(), sampling=Sampling()).request
        if kind is FaultClass.EDGE:
            bare = case.but(prompt=case.request.prompt[: subject.pair.context_length // 2]).request
        if not greedy.judge(subject, verdict.check, bare, subject.ask_one(bare)).passed:
            return verdict
    elif kind is FaultClass.EDGE:
        return verdict
    return msgspec.structs.replace(verdict, fault_class=kind, likely_fault="")


def role_of_last(completion: Completion) -> str:
    """What the last token was in its round, by the rounds that are reported."""
    if len(completion.tokens) == 1:
        return "first token"
    place = place_of(completion.rounds, len(completion.tokens) - 1)
    return place.role if place else "token of no round"
