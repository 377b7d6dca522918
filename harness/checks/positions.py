"""Position ids: what a token is told of where it stands.

They are of no consequence for which tokens are visible, so that a decoder with a right cache may
have them wrong. Where an answer is wrong, the target says which way of counting explains it: all
outputs are then what it gives when told positions that are counted in that way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from msgspec.structs import replace

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check
from harness.contract import Completion, Request, Round
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Verdict

Counting = Callable[[int, Sequence[Round], Round], int]
"""Position of a block's first token: from its place in the text, the rounds before, and its own."""

WRONG: Mapping[str, Counting] = {
    "positions go on as if no token had been rejected": lambda place, before, _: (
        place + sum(entry.drafted - entry.accepted for entry in before)
    ),
    "positions are one too high after a fully accepted block": lambda place, before, _: (
        place + bool(before and before[-1].accepted == before[-1].drafted > 0)
    ),
    "positions of a block begin at 0": lambda place, _, now: 0 if now.drafted else place,
}


@check("greedy.positions", "greedy")
def positions(subject: Subject, budget: Budget) -> Verdict:
    """Prompts of one and two tokens, where a position that is off is off by most of itself."""
    requests = [
        Request(
            prompt=random_prompt(subject.pair, length, budget.seed + seed),
            max_new_tokens=2 * budget.new_tokens,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
        for seed in range(budget.prompts)
        for length in (1, 2)
    ]
    verdict = greedy.judge_all(
        subject,
        "greedy.positions",
        requests,
        f"any differing token of {2 * budget.new_tokens} after prompts of 1 and 2 ids",
        together=True,
    )
    if verdict.status is Status.FAIL and (found := likely_counting(subject, requests)):
        return replace(verdict, fault_class=FaultClass.POSITIONS, likely_fault=found)
    return verdict


def likely_counting(subject: Subject, requests: Sequence[Request]) -> str:
    """The wrong way of counting that explains all answers, empty if none does."""
    if "position_ids" not in inspect.signature(subject.pair.target.forward).parameters:
        return ""
    answers = [(request, subject.ask_one(request)) for request in requests]
    for name, counting in WRONG.items():
        if all(explains(subject.pair, *answer, counting) for answer in answers):
            return name
    return ""


@torch.inference_mode()
def explains(pair: ModelPair, request: Request, completion: Completion, counting: Counting) -> bool:
    """Whether every token is the target's own if positions are counted like this."""
    rounds = completion.rounds or []
    text = [*request.prompt, *completion.tokens[:-1]]
    told = list(range(len(request.prompt) - 1))  # a prompt but its last token opens no block
    for number, entry in enumerate(rounds):
        first = counting(len(told), rounds[:number], entry)
        told += range(first, first + entry.accepted + 1)
    if len(told) < len(text):
        return False  # rounds that do not give all tokens, or none
    ids = torch.tensor([text], device=pair.device)
    position = torch.tensor([told[: len(text)]], device=pair.device)
    output = pair.target(
        input_ids=ids,
        position_ids=position.clamp(max=pair.context_length - 1),
        attention_mask=torch.ones_like(ids),  # without it a gap would begin another text
        use_cache=False,
    )
    best = output.logits[0, len(request.prompt) - 1 :, : pair.vocab_size].argmax(-1)
    return bool(best.tolist() == completion.tokens)
