"""What kind of fault a greedy divergence speaks of, from where the first wrong token stands.

The round that gave it is asked for once more, from a prompt that ends where that round began. If
it is right then, earlier rounds left something behind; if not, the round itself is wrong, and the
token's role in it says where. A diagnosis, and no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from msgspec.structs import replace

from harness import oracle
from harness.checks.prompts import random_prompt
from harness.checks.subject import Refused, Subject
from harness.contract import Completion, Request, Round, Sampling
from harness.models import ModelPair
from harness.verdict import FaultClass

CLOSE = 0.25  # of the median gap from the best logit to the next
OTHERS = 8  # prompts that are asked to see whether all that is wrong is close

ACCEPTED, RECOVERED, BONUS = "accepted draft", "recovered token", "bonus token"
UNDRAFTED = "token without drafts"
OF_ROLES = {
    ACCEPTED: (FaultClass.ACCEPTANCE, "a draft is accepted that is not the target's own token"),
    BONUS: (FaultClass.BONUS, "the token after a fully accepted block is not the target's"),
    RECOVERED: (FaultClass.RESIDUAL, "the token after a rejection is not the target's own"),
}


class Place(NamedTuple):
    """Where one token stands: the round that gave it, the token that opened it, its role there."""

    round: int
    begins: int
    role: str


def place_of(rounds: Sequence[Round] | None, position: int) -> Place | None:
    """The place of a token, None where no rounds are reported or none of them gave it."""
    begins = 0
    for number, entry in enumerate(rounds or ()):
        if position < begins + entry.accepted:
            return Place(number, begins, ACCEPTED)
        if position == begins + entry.accepted:
            role = BONUS if entry.accepted == entry.drafted else RECOVERED
            return Place(number, begins, role if entry.drafted else UNDRAFTED)
        begins += entry.accepted + 1
    return None


def likely_fault(
    subject: Subject, request: Request, completion: Completion, position: int
) -> tuple[FaultClass | None, str]:
    """Class and name of the fault by which the token at ``position`` is the first wrong one.

    Parameters
    ----------
    subject : Subject
        Is asked again: about other prompts where the logits are close, and once more about the
        round if it reports rounds, up to K + 1 times if not.

    Returns
    -------
    FaultClass or None
        None where it cannot be told.
    str
        Empty then.
    """
    tokens = completion.tokens[: request.max_new_tokens]
    found = oracle.greedy_divergences(subject.pair, request, tokens)
    gaps = [d.gap for d in found if d.position >= position]
    close = CLOSE * _typical_gap(subject.pair)
    if max(gaps) < close and (widest := max(gaps + _other_gaps(subject, request))) < close:
        if widest == 0:
            return FaultClass.GREEDY, "exact ties are not broken as plain decoding breaks them"
        return FaultClass.GREEDY, "logits of a block are far less exact than those of one token"
    expected = next(d.expected for d in found if d.position == position)
    right = [*tokens[:position], expected]
    place = place_of(completion.rounds, position)
    if place is None:
        starts = range(max(1, position - request.draft_tokens), position + 1)
        if position > request.draft_tokens and all(
            _right_from(subject, request, right, start) for start in starts
        ):
            return FaultClass.CACHE, "earlier rounds leave something behind"
        return None, ""
    if place.begins and _right_from(subject, request, right, place.begins):
        return FaultClass.CACHE, _left_behind((completion.rounds or [])[: place.round])
    return OF_ROLES.get(place.role, (None, ""))


_typical: dict[str, float] = {}


def _typical_gap(pair: ModelPair) -> float:
    """Median gap from the best logit to the next, along a random text; measured once a pair."""
    key = pair.fingerprint()
    if key not in _typical:
        request = Request(prompt=random_prompt(pair, 8, 0), max_new_tokens=48)
        text = random_prompt(pair, request.max_new_tokens, 1)
        scores, _ = oracle.laws_along(pair.target, request, text, pair.vocab_size)
        best = scores.amax(-1, keepdim=True)
        next_best = scores.masked_fill(scores == best, -torch.inf).amax(-1, keepdim=True)
        _typical[key] = float((best - next_best).median())
    return _typical[key]


def _other_gaps(subject: Subject, request: Request) -> list[float]:
    """Gaps of the tokens that are wrong after other prompts."""
    pair = subject.pair
    tokens = min(24, pair.context_length - 8)
    others = [
        replace(request, prompt=random_prompt(pair, 8, i), max_new_tokens=tokens)
        for i in range(OTHERS)
    ]
    try:
        answers = subject.ask(others)
    except Refused:
        return []
    return [
        found.gap
        for other, answer in zip(others, answers, strict=True)
        for found in oracle.greedy_divergences(pair, other, answer.tokens[: request.max_new_tokens])
    ]


def _right_from(subject: Subject, request: Request, right: list[int], start: int) -> bool:
    """Whether the output is right up to its last token if it begins at ``start``."""
    if request.sampling != Sampling():
        return False  # penalties and min_new_tokens count from where the output begins
    rest = replace(
        request,
        prompt=(*request.prompt, *right[:start]),
        max_new_tokens=request.max_new_tokens - start,
        eos=(),
        stop=(),
    )
    try:
        again = subject.ask_one(rest).tokens
    except Refused:
        return False
    return again[: len(right) - start] == right[start:]


def _left_behind(before: list[Round]) -> str:
    if any(entry.accepted < entry.drafted for entry in before):
        return "rejected tokens leave something behind"
    if any(entry.drafted for entry in before):
        return "a fully accepted block leaves something behind"
    return "a round without drafts leaves something behind"
