"""Greedy drafts that are the target's own choice are accepted, in every round.

At temperature 0 nothing is left to chance. The draft proposes its argmax, and where that is the
target's an exact rule accepts it: which drafts must be accepted follows from the two models and
the output. One that is rejected was not what the draft proposes after this text. Its cache holds
another one, or its positions are not those of this one; the output does not show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness import oracle
from harness.checks import greedy
from harness.checks.acceptance import wrong_counts
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import Completion, Request
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Verdict

COSTS = "it costs speed alone, if the output is the target's"


@dataclass(frozen=True)
class Draft:
    """A drafted token that was reached.

    Attributes
    ----------
    request : int
        Index of its request.
    round, position : int
        Its round, and its place in there.
    after : str
        What became of the drafts of the round before, empty in the first one.
    must : bool
        Whether it is the argmax of both models, by more than their noise.
    accepted : bool
    """

    request: int
    round: int
    position: int
    after: str
    must: bool
    accepted: bool

    @property
    def wrong(self) -> bool:
        """Whether it was rejected and must not have been."""
        return self.must and not self.accepted


def reached(
    pair: ModelPair, requests: Sequence[Request], completions: Sequence[Completion]
) -> list[Draft]:
    """All drafts that were reached, a request after the other.

    Tokens beyond those asked for are left out: the model may have no positions for them.
    """
    found: list[Draft] = []
    for index, (request, completion) in enumerate(zip(requests, completions, strict=True)):
        asked_for = completion.tokens[: request.max_new_tokens]
        found += _reached(index, completion, _musts(pair, request, asked_for))
    return found


def _musts(pair: ModelPair, request: Request, tokens: Sequence[int]) -> list[bool]:
    """Whether each token is the argmax of both models, by more than their noise."""
    must = torch.ones(len(tokens), dtype=torch.bool)
    for model, other in ((pair.target, pair), (pair.draft, replace(pair, target=pair.draft))):
        scores, _ = oracle.laws_along(model, request, tokens, pair.vocab_size)
        best = scores.double().topk(2)
        clear = best.values[:, 0] - best.values[:, 1] >= noise_of(other)
        must &= (clear & (best.indices[:, 0] == torch.tensor(tokens, device=pair.device))).cpu()
    said: list[bool] = must.tolist()
    return said


def noise_of(pair: ModelPair) -> float:
    """A gap of the target's two best logits that numerical noise does not close."""
    return greedy.NOISE_MARGIN * greedy.noise_of(pair)


def _reached(index: int, completion: Completion, must: Sequence[bool]) -> Iterator[Draft]:
    start, after = 0, ""
    for number, entry in enumerate(completion.rounds or []):
        for i in range(min(entry.accepted + 1, entry.drafted, len(must) - start)):
            yield Draft(index, number, i, after, must[start + i], i < entry.accepted)
        start += entry.accepted + 1
        after = "accepted whole" if entry.accepted == entry.drafted else "cut by a rejection"


def evidence_of(drafts: Sequence[Draft], requests: Sequence[Request]) -> dict[str, Any]:
    """How many were rejected that must not have been, by where in their round and output."""

    def share(of: Sequence[Draft]) -> list[int]:
        must = [draft for draft in of if draft.must]
        return [sum(draft.wrong for draft in must), len(must)]

    first = [draft for draft in drafts if not draft.position]
    ks = sorted({request.draft_tokens for request in requests})
    return {
        "greedy_drafts": len(drafts),
        "greedy_rejected": sum(draft.wrong for draft in drafts),
        "rejected_of_must_in_first_positions_by_k": {
            str(k): share([d for d in first if requests[d.request].draft_tokens == k]) for k in ks
        },
        "rejected_of_must_in_later_positions": share([d for d in drafts if d.position]),
        "rejected_of_must_by_round": {
            "first": share([d for d in drafts if not d.round]),
            "2nd to 8th": share([d for d in drafts if 0 < d.round < 8]),
            "later": share([d for d in drafts if d.round >= 8]),
        },
    }


def rejection(
    subject: Subject, name: str, requests: Sequence[Request], drafts: Sequence[Draft]
) -> Verdict | None:
    """FAIL if any draft was rejected that must not have been."""
    wrong = [draft for draft in drafts if draft.wrong]
    if not wrong:
        return None
    must = sum(draft.must for draft in drafts)
    likely, kind = diagnosis(wrong)
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=f"rejects {len(wrong)} of {must} greedy drafts that both models choose, by more "
        "than their noise",
        likely_fault=f"{likely}; {COSTS}",
        fault_class=kind,
        evidence=evidence_of(drafts, requests),
        repro=repro(subject, [requests[wrong[0].request]]),
    )


def diagnosis(wrong: Sequence[Draft]) -> tuple[str, FaultClass]:
    """What the first wrong rejections of all requests have in common."""
    first = {draft.request: draft for draft in reversed(wrong)}.values()
    if any(not draft.round for draft in first):
        if all(draft.position for draft in first):
            return "the draft does not see its own drafts where they are", FaultClass.POSITIONS
        return "the draft reads another text, or other positions, from the start", FaultClass.SPEED
    before = {draft.after for draft in first}
    if before == {"accepted whole"}:
        return (
            "after a block that was accepted whole the draft's cache lacks its end or the bonus "
            "token",
            FaultClass.CACHE,
        )
    if before == {"cut by a rejection"}:
        return (
            "after a rejection the draft's cache is not rolled back, or not fed the token that "
            "replaced the rejected one",
            FaultClass.CACHE,
        )
    return "the draft's cache is not rolled back to the committed text", FaultClass.CACHE


@check("acceptance.greedy_drafts", "greedy", "rounds", "model_draft")
def greedy_drafts(subject: Subject, budget: Budget) -> Verdict:
    """Of any pair, greedy drafts that both models choose are accepted, over K, in long outputs."""
    name = "acceptance.greedy_drafts"
    requests = far_requests(subject, budget)
    completions = subject.ask(requests)
    if wrong := wrong_counts(subject, name, requests, completions):
        return wrong
    drafts = reached(subject.pair, requests, completions)
    if wrong := rejection(subject, name, requests, drafts):
        return wrong
    evidence, must = evidence_of(drafts, requests), sum(draft.must for draft in drafts)
    if not must:
        message = f"none of {len(drafts)} drafts that were reached is one that both models choose"
        return Verdict(check=name, status=Status.INCONCLUSIVE, message=message, evidence=evidence)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"accepts all {must} greedy drafts that both models choose",
        ruled_out=f"a single one rejected, in rounds up to the {max(d.round for d in drafts) + 1}th"
        ": a draft whose cache or positions are not those of the committed text",
        evidence=evidence,
    )


def far_requests(subject: Subject, budget: Budget) -> list[Request]:
    """Long greedy outputs over K, which the decoder must support by declaring ``greedy``."""
    pair = subject.pair
    requests = []
    for k in budget.draft_tokens:
        for seed in range(budget.prompts):
            prompt = random_prompt(pair, 4 + seed, budget.seed + seed)
            most = min(4 * budget.new_tokens, pair.context_length - len(prompt))
            requests.append(Request(prompt=prompt, max_new_tokens=most, draft_tokens=k))
    return requests
