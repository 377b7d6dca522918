"""Prompts of the checks: made from a seed, or taken from the task sets where a pair has text."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness import oracle
from harness.models import ModelPair

LOOPS_TRIED, LOOKED_AT = 2, 48  # texts, and how far into them a loop is looked for


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


def looping_prompt(pair: ModelPair, tokens: int, seed: int) -> tuple[int, ...]:
    """A prompt from the midst of greedy text, where what comes next has come before.

    Easy for prompt lookup: of all places in some greedy texts it is the one at which most of the
    next ``tokens`` follow the two before them as they did the last time.
    """
    best, most = random_prompt(pair, 4, seed), -1
    for attempt in range(LOOPS_TRIED):
        prompt = random_prompt(pair, 4, seed + attempt)
        text = [*prompt, *oracle.greedy_path(pair, prompt, LOOKED_AT + tokens)]
        after: dict[tuple[int, int], int] = {}
        known = []  # whether lookup finds each token, and not by repeating the last one
        for i in range(2, len(text)):
            key = (text[i - 2], text[i - 1])
            known.append(after.get(key) == text[i] != text[i - 1])
            after[key] = text[i]
        for start in range(8, len(text) - tokens + 1):
            found = sum(known[start - 2 : start - 2 + tokens])
            if found > most:
                best, most = tuple(text[:start]), found
    return best


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
