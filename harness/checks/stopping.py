"""Where output ends: EOS, stop sequence and length at every offset of a block."""

from __future__ import annotations

from collections.abc import Iterator

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.verdict import Verdict

_NAME = "stopping.offsets"


@check(_NAME, "greedy")
def offsets(subject: Subject, budget: Budget) -> Verdict:
    """The output ends where plain decoding's does, wherever in a block that falls.

    The tokens that plain decoding emits are declared EOS, or stop sequence, one after the other:
    with a draft that is often right they come up as accepted drafts, as recovered tokens and as
    bonus tokens.
    """
    requests = [
        request
        for k in budget.draft_tokens
        for seed in range(budget.prompts)
        for request in _requests(subject, budget, k, seed)
    ]
    return greedy.judge_all(
        subject,
        _NAME,
        requests,
        f"an end missed, or found in the wrong place, at the first {max(budget.draft_tokens) + 3} "
        "offsets: EOS, stop sequences of 1 to 3 tokens, max_new_tokens, min_new_tokens",
    )


def _requests(subject: Subject, budget: Budget, k: int, seed: int) -> Iterator[Request]:
    pair = subject.pair
    prompt = random_prompt(pair, 4 + seed, budget.seed + seed)
    horizon = 2 * k + 6
    path = oracle.greedy_path(pair, prompt, horizon)
    for offset in range(k + 3):
        token = path[offset]
        yield Request(prompt=prompt, max_new_tokens=horizon, draft_tokens=k, eos=(token,))
        yield Request(prompt=prompt, max_new_tokens=offset + 1, draft_tokens=k)
        for width in (1, 2, 3):
            stop = tuple(path[offset : offset + width])
            yield Request(prompt=prompt, max_new_tokens=horizon, draft_tokens=k, stop=(stop,))
        yield Request(
            prompt=prompt,
            max_new_tokens=horizon,
            draft_tokens=k,
            eos=(token,),
            sampling=Sampling(min_new_tokens=offset + 2),
        )
