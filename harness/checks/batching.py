"""A row of a batch gets what it gets alone."""

from __future__ import annotations

import random

import msgspec

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import lengths, random_prompt, repetitive_prompt
from harness.checks.reproduce import Call
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.verdict import Status, Verdict

_NAME = "batching.rows"


def _requests(subject: Subject, budget: Budget) -> list[Request]:
    """Rows unlike each other in prompt, length, K and end, so that they fall out of step."""
    pair, rng = subject.pair, random.Random(budget.seed)
    k = max(budget.draft_tokens)
    requests = []
    for index in range(4 * budget.prompts + 4):
        make = repetitive_prompt if index % 3 == 2 else random_prompt
        length = rng.choice(lengths(pair, k, min(40, pair.context_length - budget.new_tokens)))
        requests.append(
            Request(
                prompt=make(pair, length, budget.seed + index),
                max_new_tokens=rng.randint(1, budget.new_tokens),
                draft_tokens=rng.choice(budget.draft_tokens),
                speculate=index % 5 != 4,
            )
        )
    if "plain" not in subject.decoder.capabilities:
        requests = [msgspec.structs.replace(r, speculate=True) for r in requests]
    return requests


@check(_NAME, "greedy", "batch")
def rows(subject: Subject, budget: Budget) -> Verdict:
    """Greedy rows of a mixed batch equal plain decoding, in any order, beside sampled rows."""
    requests = _requests(subject, budget)
    beside = [
        msgspec.structs.replace(r, sampling=Sampling(temperature=0.8 + 0.1 * i))
        for i, r in enumerate(requests[::3])
    ]
    batches = [requests, requests[::-1]]
    if "sampling" in subject.decoder.capabilities:
        batches.append(
            [request for both in zip(beside, requests, strict=False) for request in both]
        )
    for n, batch in enumerate(batches, start=1):
        for request, completion in zip(batch, subject.ask(batch), strict=True):
            if not request.sampling.greedy:
                continue
            verdict = greedy.judge(subject, _NAME, request, completion)
            if not verdict.passed:
                return greedy.in_short(subject, [Call(tuple(b)) for b in batches[:n]], verdict)
    return Verdict(
        check=_NAME,
        status=Status.PASS,
        message=f"{len(requests)} rows equal plain decoding in {len(batches)} batches",
        ruled_out="any differing token of a greedy row in ragged, permuted and mixed batches",
    )
