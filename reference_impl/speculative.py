"""Speculative decoding on one page (Leviathan et al. 2023; Chen et al. 2023).

p is the target's law of the next token, q the draft's. One round:

    propose   draw K tokens d_1 .. d_K from q, each given those before it
    verify    one target call gives p at all K + 1 prefixes
    accept    from the left, d_i with probability min(1, p(d_i) / q(d_i))
    recover   the first rejected token is replaced by a draw from (p - q)+, normalised
    bonus     if none was rejected, the last row of p gives one more token

Why every token follows p. A drafted token x is proposed and kept with probability
q(x) min(1, p(x)/q(x)) = min(p(x), q(x)). Something is rejected with probability
1 - sum_y min(p(y), q(y)) = sum_y (p(y) - q(y))+, which is the very constant that normalises the
residual, so x is recovered with probability (p(x) - q(x))+. The two add up to
min(p, q) + (p - q)+ = p. The bonus token is drawn from p. Rows after the first rejection are
never looked at: they belong to a prefix that was not emitted. Temperature 0 is no special case:
p is then a point mass on the argmax, and a token is accepted if and only if it is the argmax.

Uncached, batch 1: ``engine.py`` is the fast path and is held to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.contract import Completion, Request, Round
from reference_impl.autoregressive import Laws, finished
from reference_impl.randomness import Randomness

Propose = Callable[[Sequence[int], int, Randomness], tuple[list[int], Tensor]]
"""``propose(output, K, randomness)``: at most K tokens, and the laws q [K, V] they came from."""


def decode(target: Laws, propose: Propose, request: Request, randomness: Randomness) -> Completion:
    """Decode one request speculatively."""
    output: list[int] = []
    rounds: list[Round] = []
    while True:
        # The round ends with a token of the target's own: leave room for it.
        room = request.max_new_tokens - len(output) - 1
        drafts, q = propose(output, min(request.draft_tokens, room), randomness)
        p = target([*output, *drafts], len(drafts) + 1)

        accepted = 0
        while accepted < len(drafts):
            d = drafts[accepted]
            if not randomness.flip(float(p[accepted, d] / q[accepted, d])):
                break
            accepted += 1

        if accepted < len(drafts):
            law = residual(p[accepted], q[accepted])
        else:
            law = p[accepted]
        emitted = [*drafts[:accepted], randomness.choice(law)]

        rounds.append(Round(drafted=len(drafts), accepted=accepted))
        for token in emitted:
            output.append(token)
            if reason := finished(output, request):
                return Completion(tokens=output, finish_reason=reason, rounds=rounds)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """(p - q)+, unnormalised, [..., V].

    Where rounding leaves nothing of it (p and q equal up to the last bit), p itself: the
    probability of getting there is that rounding error.
    """
    left = (p - q).clamp(min=0)
    return torch.where(left.sum(-1, keepdim=True) > 0, left, p)


def draft_with(draft: Laws) -> Propose:
    """Propose by sampling from a draft model's laws, one token at a time."""

    def propose(
        output: Sequence[int], count: int, randomness: Randomness
    ) -> tuple[list[int], Tensor]:
        tokens: list[int] = []
        q: list[Tensor] = []
        for _ in range(count):
            q.append(draft([*output, *tokens], 1)[0])
            tokens.append(randomness.choice(q[-1]))
        return tokens, torch.stack(q) if q else torch.empty(0, 0)

    return propose
