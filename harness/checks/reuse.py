"""What a decoder keeps between requests, and between rounds, does not show in what it answers.

Greedy requests that follow each other, and outputs that run far. Where an answer is wrong the
requests before it are left out one by one: those that are needed left their state behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence

from msgspec.structs import replace

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt, repetitive_prompt
from harness.checks.reproduce import Call, program
from harness.checks.subject import Subject, check
from harness.contract import Completion, Request, Round, Sampling
from harness.verdict import FaultClass, Status, Verdict

Conversation = Generator[Request, Completion, None]
"""Yields requests one by one, and is sent the answer to each."""

FAR = 128  # tokens of a long request, where the context allows that
PROMPT = 24
RECENT = 8  # calls, of which one has spoiled the last
ENOUGH = 8  # accepted tokens on a new decoder, of which a used one must accept half


def judged(
    subject: Subject, name: str, calls: Sequence[Call], answers: Sequence[Completion]
) -> Verdict | None:
    """The FAIL of the first wrong answer to the last of these calls, in short."""
    for request, completion in zip(calls[-1].requests, answers, strict=True):
        verdict = greedy.judge(subject, name, request, completion)
        if not verdict.passed:
            return greedy.in_short(subject, calls[-RECENT:], verdict)
    return None


def held(subject: Subject, name: str, conversations: Sequence[Conversation]) -> Verdict:
    """Have all conversations; the first answer that is wrong decides."""
    calls: list[Call] = []
    for conversation in conversations:
        request = next(conversation)
        while True:
            answer = subject.ask_one(request)
            calls.append(Call((request,)))
            if wrong := judged(subject, name, calls, [answer]):
                return wrong
            try:
                request = conversation.send(answer)
            except StopIteration:
                break
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(calls)} requests that follow each other equal plain decoding",
        evidence={"requests": len(calls)},
    )


# --- rounds ---------------------------------------------------------------------------------------


@check("cache.all_rejected", "greedy")
def all_rejected(subject: Subject, budget: Budget) -> Verdict:
    """Long outputs, up to the end of the context: a draft that is hardly ever right."""
    return _far(subject, budget, "cache.all_rejected")


@check("cache.none_rejected", "greedy")
def none_rejected(subject: Subject, budget: Budget) -> Verdict:
    """Long outputs, up to the end of the context: a draft that is always right."""
    return _far(subject, budget, "cache.none_rejected")


@check("cache.alternating", "greedy")
def alternating(subject: Subject, budget: Budget) -> Verdict:
    """Long outputs, up to the end of the context: a draft that is right now and then.

    Every other prompt repeats itself: prompt lookup then has rounds with drafts and without.
    """
    return _far(subject, budget, "cache.alternating")


def _far(subject: Subject, budget: Budget, name: str) -> Verdict:
    pair, seen = subject.pair, Counter[str]()
    calls: list[Call] = []
    for seed in range(budget.prompts):
        for k in _ks(budget):
            make = repetitive_prompt if (seed + len(calls)) % 2 else random_prompt
            prompt = make(pair, 5, budget.seed + seed)
            most = min(4 * budget.new_tokens, pair.context_length - len(prompt))
            calls.append(Call((Request(prompt=prompt, max_new_tokens=most, draft_tokens=k),)))
            answers = subject.ask(calls[-1].requests)
            if wrong := judged(subject, name, calls, answers):
                return wrong
            seen.update(kind(entry) for entry in answers[0].rounds or [])
    told = ", ".join(f"{count} {what}" for what, count in seen.most_common())
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(calls)} long outputs equal plain decoding"
        + (f"; rounds: {told}" if told else ""),
        ruled_out="any differing token of a long greedy output"
        + (f", after rounds with {', '.join(sorted(seen))}" if seen else ""),
        evidence={"requests": len(calls), "rounds": dict(seen)},
    )


def kind(entry: Round) -> str:
    """What became of the drafts of a round, in words."""
    if not entry.drafted:
        return "no draft"
    return {0: "all rejected", entry.drafted: "none rejected"}.get(entry.accepted, "some rejected")


# --- requests -------------------------------------------------------------------------------------


@check("cache.second_turn", "greedy")
def second_turn(subject: Subject, budget: Budget) -> Verdict:
    """A prompt that goes on from an earlier answer, however that one ended.

    The second prompt is the first one, the ids that came back, and something new. By length, by
    EOS and by a stop sequence the first answer ends at every place of a block: whatever the
    decoder had computed beyond must be forgotten.

    Kills alone: overshoot_remembered.
    """
    name = "cache.second_turn"
    turns = [
        _turns(subject, budget, k, seed) for seed in range(budget.prompts) for k in _ks(budget)
    ]
    verdict = held(subject, name, turns)
    ends = [end for end in ("eos", "stop") if end in subject.decoder.capabilities]
    ks = " and ".join(map(str, _ks(budget)))
    ruled_out = (
        "a token of an earlier turn that is reused though it was not returned, at K "
        f"{ks}, ends by {', '.join(['length', *ends])}"
    )
    return replace(verdict, ruled_out=ruled_out) if verdict.passed else verdict


def _turns(subject: Subject, budget: Budget, k: int, seed: int) -> Conversation:
    pair = subject.pair
    prompt = random_prompt(pair, PROMPT // 2, budget.seed + seed)
    more = random_prompt(pair, 2, budget.seed + seed + 1)
    path = oracle.greedy_path(pair, prompt, k + 3)
    for request in _ends(prompt, path, k):
        if not subject.supports(request):
            continue
        answer = yield request
        text = (*prompt, *answer.tokens, *more)
        yield Request(prompt=text, max_new_tokens=4, draft_tokens=k)


def _ends(prompt: tuple[int, ...], output: Sequence[int], k: int) -> Iterator[Request]:
    """The same request, ended at each place of its first block."""
    base = Request(prompt=prompt, max_new_tokens=k + 3, draft_tokens=k)
    for n in range(1, k + 2):
        ended = replace(base, eos=(output[n - 1],))
        if output[n - 1] not in output[: n - 1]:
            yield ended
        yield replace(base, stop=(tuple(output[max(0, n - 2) : n]),))
    yield replace(base, max_new_tokens=k + 1)


@check("cache.shared_prefix", "greedy")
def shared_prefix(subject: Subject, budget: Budget) -> Verdict:
    """Prompts that agree with an earlier one up to some place, and only up to there."""
    name = "cache.shared_prefix"
    groups = [
        _relatives(subject, budget, k, seed) for seed in range(budget.prompts) for k in _ks(budget)
    ]
    ruled_out = "states of an earlier prompt reused beyond the ids that both have in common"
    verdict = greedy.judge_all(subject, name, [r for group in groups for r in group], ruled_out)
    if verdict.passed and "batch" in subject.decoder.capabilities:
        calls = [Call(tuple(group)) for group in groups]
        for n, call in enumerate(calls, start=1):
            if wrong := judged(subject, name, calls[:n], subject.ask(call.requests)):
                return wrong
    return verdict


def _ks(budget: Budget) -> Sequence[int]:
    """The smallest and the largest K."""
    return sorted({budget.draft_tokens[0], budget.draft_tokens[-1]})


def _relatives(subject: Subject, budget: Budget, k: int, seed: int) -> list[Request]:
    """The same prompt again; one with another id; others of its length; its beginning; more."""
    pair = subject.pair
    prompt = random_prompt(pair, PROMPT, budget.seed + seed)
    other = random_prompt(pair, PROMPT, budget.seed + seed + 1)
    prompts = [prompt, prompt, other, (*prompt[:-3], *other[:3])]
    for at in (0, PROMPT // 2, PROMPT - 2):
        token = next(t for t in other if t != prompt[at])
        prompts += [(*prompt[:at], token, *prompt[at + 1 :])]
    prompts += [prompt[: PROMPT // 2], prompt[:1], (*prompt, *other), prompt]
    return [Request(prompt=p, max_new_tokens=k + 3, draft_tokens=k) for p in prompts]


@check("cache.second_request", "greedy")
def second_request(subject: Subject, budget: Budget) -> Verdict:
    """A short request after a long one is answered as by a new decoder, and as fast.

    Its ids are judged. Its rounds, if reported, are compared with those of a decoder built anew:
    less than half as many accepted tokens is a fault, any other difference is told.
    """
    name = "cache.second_request"
    used, new = Counter[str](), Counter[str]()
    calls: list[Call] = []
    for k in _ks(budget):
        long, short = _long_and_short(subject, budget, k)
        for what, request in [*(("", request) for request in long), *short.items()]:
            calls.append(Call((request,)))
            answer = subject.ask_one(request)
            if wrong := judged(subject, name, calls, [answer]):
                return wrong
            if what and answer.rounds is not None:
                used[what] += _accepted(answer)
                new[what] += _accepted(subject.anew().ask_one(request))
    evidence = {"requests": len(calls), "accepted": dict(used), "accepted_by_a_new_one": dict(new)}
    for what, count in new.items():
        if count >= ENOUGH and 2 * used[what] < count:
            return Verdict(
                check=name,
                status=Status.FAIL,
                message=f"accepts {used[what]} drafted tokens of {what} after longer requests, "
                f"a new decoder {count}",
                likely_fault="the drafter is not reset between requests, which costs speed alone",
                fault_class=FaultClass.SPEED,
                evidence=evidence,
                repro=program(subject, calls),
            )
    compared = [what for what, count in new.items() if count >= ENOUGH]
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(calls)} requests equal plain decoding"
        + f"; accepts {used.total()} drafted tokens after longer requests, a new decoder "
        f"{new.total()}" * bool(compared),
        ruled_out="a token that depends on the requests before"
        + f"; half of the accepted tokens lost, of {', '.join(compared)}" * bool(compared),
        evidence=evidence,
    )


def _accepted(completion: Completion) -> int:
    return sum(entry.accepted for entry in completion.rounds or [])


def _long_and_short(
    subject: Subject, budget: Budget, k: int
) -> tuple[list[Request], dict[str, Request]]:
    """Requests that fill whatever is kept, and short ones, by what they are, that need it empty."""
    pair = subject.pair
    far = min(FAR, pair.context_length) // 2
    prompt = random_prompt(pair, far, budget.seed)
    long = [
        Request(prompt=prompt, max_new_tokens=far // 2, draft_tokens=k),
        Request(prompt=prompt, max_new_tokens=1, draft_tokens=k),
        Request(prompt=prompt, max_new_tokens=8, draft_tokens=k, speculate=False),
    ]
    text = random_prompt(pair, 10, budget.seed + 1)
    short = Request(prompt=text, max_new_tokens=budget.new_tokens, draft_tokens=k)
    # A text that prompt lookup is always right about.
    constant = Sampling(logit_bias={text[0]: 1e4})
    requests = {
        "a short text": short,
        "a text that repeats itself": replace(short, sampling=constant),
    }
    return [r for r in long if subject.supports(r)], {
        what: request for what, request in requests.items() if subject.supports(request)
    }
