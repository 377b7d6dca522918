"""Speculation saves calls of the target: evidence that it takes place at all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.stats import fisher_exact

from harness.checks.budget import Budget
from harness.checks.prompts import looping_prompt, random_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import Completion, Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict

TOKENS = 48  # of each text
COLD = Sampling(temperature=0.1)  # for decoders that only sample


@check("speed_evidence.target_calls")
def target_calls(subject: Subject, budget: Budget) -> Verdict:
    """Easy texts take fewer calls of the target than they have tokens, and drafts are accepted.

    Easy are texts that repeat themselves, for a drafter that looks them up, and any text for a
    draft that is the target. Acceptance in the first and second half of the texts is told: less
    in the second is what a draft whose state goes stale looks like.
    """
    name = "speed_evidence.target_calls"
    subject.require_one_of("rounds", "metrics")
    requests = [request for request in _easy(subject, budget) if subject.supports(request)]
    completions = subject.ask(requests) if requests else []
    calls = [_calls(completion) for completion in completions]
    if not any(calls):
        raise Unsupported(
            "no request is within the declared capabilities, or no target calls are counted"
        )
    counted = [(c, len(a.tokens)) for c, a in zip(calls, completions, strict=True) if c]
    total, tokens = (sum(column) for column in zip(*counted, strict=True))
    drafted, accepted = _drafts(completions)
    evidence = {"tokens": tokens, "target_calls": total, "drafted": drafted, "accepted": accepted}
    problem = ""
    if total >= tokens:
        problem = f"{total} target calls for {tokens} tokens of easy text"
    elif accepted == 0:
        problem = f"none of {drafted} drafts are accepted on easy text"
    if problem:
        likely = "drafts are never accepted" if drafted else "nothing is drafted: plain decoding"
        return Verdict(
            check=name,
            status=Status.FAIL,
            message=f"speculation saves nothing: {problem}",
            likely_fault=likely,
            fault_class=FaultClass.SPEED,
            evidence=evidence,
            repro=repro(subject, requests),
        )
    halves = _halves(completions)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{total} target calls for {tokens} tokens of easy text{_decay(halves, budget)}",
        ruled_out="plain decoding that calls itself speculative; drafts that are never accepted",
        evidence=evidence | {"halves": halves},
    )


@check("speed_evidence.target_tokens", "metrics")
def target_tokens(subject: Subject, budget: Budget) -> Verdict:
    """A text is mostly read once: the target computes little more than prompt and blocks.

    A tree may double a block, and a scheduler take a row's cache away now and then; but a text
    that is read again for every second call is too much.

    Kills alone: prompt_read_again.
    """
    name, length = "speed_evidence.target_tokens", min(60, subject.pair.context_length // 2)
    requests = [
        Request(
            prompt=random_prompt(subject.pair, length, budget.seed + k),
            max_new_tokens=budget.new_tokens,
            sampling=Sampling() if "greedy" in subject.decoder.capabilities else COLD,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
    ]
    dearest = 0.0
    for request, completion in zip(requests, subject.ask(requests), strict=True):
        m = completion.metrics
        if m is None or m.target_tokens is None or m.target_calls is None:
            raise Unsupported("target_tokens and target_calls are not both counted")
        text = length + len(completion.tokens)
        bound = text + m.target_calls * (2 * (request.draft_tokens + 1) + text // 2)
        dearest = max(dearest, m.target_tokens / text)
        if m.target_tokens > bound:
            return Verdict(
                check=name,
                status=Status.FAIL,
                message=f"the target computes {m.target_tokens} positions in {m.target_calls} "
                f"calls for a text of {text} ids, more than {bound}",
                likely_fault="the prompt is read again in every round",
                fault_class=FaultClass.SPEED,
                evidence={"metrics": msgspec.to_builtins(m)},
                repro=repro(subject, [request]),
            )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"the target computes at most {dearest:.2f} positions for every id of a text",
        ruled_out="a text that is read again for every second call",
    )


def _easy(subject: Subject, budget: Budget) -> list[Request]:
    pair = subject.pair
    looping = looping_prompt(pair, min(TOKENS, pair.context_length // 2), budget.seed)
    prompts = [looping, *(random_prompt(pair, 4, budget.seed + i) for i in range(budget.prompts))]
    return [
        Request(
            prompt=prompt,
            max_new_tokens=min(TOKENS, pair.context_length - len(prompt)),
            sampling=Sampling() if "greedy" in subject.decoder.capabilities else COLD,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
        for prompt in prompts
    ]


def _calls(completion: Completion) -> int | None:
    """Target calls of an answer, by its rounds or else by its metrics."""
    if completion.rounds is not None:
        return len(completion.rounds)
    return completion.metrics.target_calls if completion.metrics else None


def _drafts(completions: Sequence[Completion]) -> tuple[int | None, int | None]:
    """Drafted and accepted tokens of all answers, None where they are not counted."""
    if all(completion.rounds is not None for completion in completions):
        rounds = [entry for completion in completions for entry in completion.rounds or ()]
        return sum(r.drafted for r in rounds), sum(r.accepted for r in rounds)
    metrics = [completion.metrics for completion in completions]
    drafted = [m.drafted for m in metrics if m and m.drafted is not None]
    accepted = [m.accepted for m in metrics if m and m.accepted is not None]
    return sum(drafted) if drafted else None, sum(accepted) if accepted else None


def _halves(completions: Sequence[Completion]) -> list[list[int]]:
    """Accepted and not accepted drafts of rounds that begin in the first half, and in the second.

    Empty where no rounds are reported.
    """
    table = np.zeros((2, 2), dtype=np.int64)
    for completion in completions:
        at = 0
        for entry in completion.rounds or ():
            half = int(2 * at >= len(completion.tokens))
            table[half] += entry.accepted, entry.drafted - entry.accepted
            at += entry.accepted + 1
    halves: list[list[int]] = table.tolist()
    return halves if table.sum(1).all() else []


def _decay(halves: Sequence[Sequence[int]], budget: Budget) -> str:
    """In words: acceptance in both halves, and whether the second is less than by chance."""
    if not halves:
        return ""
    first, second = (accepted / (accepted + rejected) for accepted, rejected in halves)
    less = fisher_exact(halves, alternative="greater").pvalue < budget.alpha
    words = "falls along the text" if less else "is"
    return f"; acceptance {words}: {first:.2f} in the first half, {second:.2f} in the second"
