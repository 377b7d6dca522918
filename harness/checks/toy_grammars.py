"""Grammars of the checks: small automata that change what they allow inside a block."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contract import Grammar
from harness.models import ModelPair

ALPHABET = 256  # tokens of a large vocabulary that a grammar is about


def alphabet(pair: ModelPair, path: Sequence[int]) -> Sequence[int]:
    """Tokens that a grammar speaks of: all, or few of a large vocabulary, and those of a text."""
    return sorted({*range(min(pair.vocab_size, ALPHABET)), *path})


def alternating(tokens: Sequence[int], marker: int) -> Grammar:
    """Any tokens up to the first ``marker``, then even and odd ones in turn."""
    free = {**dict.fromkeys(tokens, 0), marker: 1}
    even = {token: 2 for token in tokens if token % 2 == 0}
    odd = {token: 1 for token in tokens if token % 2 == 1}
    return Grammar((free, even, odd))


def ending(tokens: Sequence[int], eos: int, after: int) -> Grammar:
    """Any ``after`` tokens but ``eos``, which then must come and is the last."""
    others = [token for token in tokens if token != eos]
    free = [dict.fromkeys(others, number + 1) for number in range(after)]
    return Grammar((*free, {eos: after + 1}, {}))
