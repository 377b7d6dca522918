"""Lookup of the longest suffix that occurred before, whatever its length: a suffix automaton.

As in SuffixDecoding (Oliaro et al. 2024) and SAM decoding (Hu et al. 2024), over prompt and output
of the row itself. Prompt lookup tries a few lengths at every round; the automaton (Blumer et al.
1985) learns each token once, at amortised constant cost, and knows the longest match at once.
"""

from __future__ import annotations

from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.ngram import NgramDrafter


class SuffixAutomaton:
    """All substrings of a text that grows token by token, and the longest suffix seen before.

    A state stands for substrings that end at the same places. It has transitions by token, the
    length of its longest substring, a link to the state of the longest suffix that ends at more
    places, and one of the places, as the number of tokens up to there.

    Attributes
    ----------
    matched : int
        Length of the longest suffix of the text that occurred earlier in it.
    after : int
        Index of the token that followed it there; meaningless where ``matched`` is 0.
    """

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._length, self._link, self._end = [0], [-1], [0]
        self._last, self._size = 0, 0
        self.matched = self.after = 0

    def append(self, token: int) -> None:
        """Take the next token of the text."""
        self._size += 1
        new = self._state({}, self._length[self._last] + 1, 0, self._size)
        state = self._last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._split(state, token)
        self._last = new
        longest = self._link[new]
        self.matched, self.after = self._length[longest], self._end[longest]
        self._end[longest] = self._size  # the next match goes on as this one does

    def _split(self, state: int, token: int) -> int:
        """The state behind a transition, parted from longer substrings that end at fewer places."""
        behind, length = self._next[state][token], self._length[state] + 1
        if self._length[behind] == length:
            return behind
        part = self._state(dict(self._next[behind]), length, self._link[behind], self._end[behind])
        self._link[behind] = part
        while state >= 0 and self._next[state].get(token) == behind:
            self._next[state][token] = part
            state = self._link[state]
        return part

    def _state(self, following: dict[int, int], length: int, link: int, end: int) -> int:
        self._next.append(following)
        self._length.append(length)
        self._link.append(link)
        self._end.append(end)
        return len(self._next) - 1


class SuffixDrafter(NgramDrafter):
    """Proposes what followed the longest suffix of the row's text that occurred before.

    Parameters
    ----------
    min_match : int
        Shortest suffix that is worth a proposal.
    """

    def __init__(self, min_match: int = 1) -> None:
        if min_match < 1:
            raise ValueError(f"min_match is {min_match}: at least 1 needed")
        self.min_match = min_match

    def start(self, batch: Batch, capacity: int) -> None:
        """Forget all texts."""
        self._automata = [SuffixAutomaton() for _ in range(len(batch))]
        self._read = [0] * len(batch)

    def lookup(self, tokens: Ints, length: Ints) -> Ints:
        """Learn what is new, then say where the longest match goes on; as for prompt lookup."""
        after = length.copy()
        for row, (automaton, n) in enumerate(zip(self._automata, length.tolist(), strict=True)):
            for token in tokens[row, self._read[row] : n].tolist():
                automaton.append(token)
            self._read[row] = max(self._read[row], n)
            if automaton.matched >= self.min_match:
                after[row] = automaton.after
        return after

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self._automata = [self._automata[row] for row in rows.tolist()]
        self._read = [self._read[row] for row in rows.tolist()]
