"""Prompts of the checks: made from a seed, or taken from the task sets where a pair has text."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.models import ModelPair


def random_prompt(pair: ModelPair, length: int, seed: int) -> tuple[int, ...]:
    """``length`` token ids, none of them an EOS of the pair."""
    rng = random.Random(f"{seed} {length}")
    prompt: list[int] = []
    while len(prompt) < length:
        token = rng.randrange(pair.vocab_size)
        if token not in pair.eos:
            prompt.append(token)
    return tuple(prompt)


def repetitive_prompt(pair: ModelPair, length: int, seed: int) -> tuple[int, ...]:
    """A short random text over and over: prompt lookup always finds something."""
    period = random_prompt(pair, min(5, length), seed)
    return tuple((period * (length // len(period) + 1))[:length])


def lengths(pair: ModelPair, draft_tokens: int, most: int, window: int = 0) -> Sequence[int]:
    """Prompt lengths where something changes: 1, 2, around K, around the window, near the limit.

    Parameters
    ----------
    most : int
        Longest prompt that leaves room for the output.
    window : int
        Sliding window of the target, 0 for none.
    """
    wanted = {1, 2, draft_tokens, draft_tokens + 1, 17}
    if window:
        wanted |= {window - 1, window, window + 1, window + draft_tokens}
    if most <= 512:  # a long context is a matter of cost, not of kind
        wanted |= {most - draft_tokens, most}
    return sorted(length for length in wanted if 1 <= length <= most)
