"""Rounds as trials: which drafted positions were reached, which accepted, and what must add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.contract import Round

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROUNDING = 1e-9  # by which a sum of probabilities may miss [0, 1]


def wrong_rounds(rounds: Sequence[Round] | None, tokens: int, draft_tokens: int | None) -> str:
    """What is wrong with the rounds of an output, empty if nothing is.

    Every round gives its accepted tokens and one more; only the last may be cut by the end of the
    output.

    Parameters
    ----------
    tokens : int
        Length of the output, at least 1.
    draft_tokens : int or None
        K, the most that one round may draft; None for any number.
    """
    if not rounds:
        return f"{'an empty list of' if rounds == [] else 'no'} rounds for {tokens} tokens"
    for i, entry in enumerate(rounds):
        if type(entry.drafted) is not int or type(entry.accepted) is not int:
            return f"round {i} counts {entry.accepted!r} of {entry.drafted!r}: they must be ints"
        if not 0 <= entry.accepted <= entry.drafted:
            return f"round {i} accepted {entry.accepted} of {entry.drafted} drafted tokens"
        if draft_tokens is not None and entry.drafted > draft_tokens:
            return f"round {i} drafted {entry.drafted} tokens, K is {draft_tokens}"
    total = sum(entry.accepted + 1 for entry in rounds)
    if total < tokens:
        return f"the rounds account for {total} tokens, the output has {tokens}"
    before = total - rounds[-1].accepted - 1
    if before >= tokens:
        return (
            f"the rounds before the last one account for {before} tokens, the output has {tokens}"
        )
    return ""


@dataclass(frozen=True, eq=False)
class Trials:
    """Drafted positions that were reached: each accepted or rejected.

    Attributes
    ----------
    position : ndarray [n], int64
        Place in the round; 0 for its first drafted token.
    accepted : ndarray [n], bool
    beta : ndarray [n], float64
        Sum of min(p, q) there.
    """

    position: Ints
    accepted: NDArray[np.bool_]
    beta: Floats

    def __post_init__(self) -> None:
        """Check them.

        Raises
        ------
        ValueError
            Naming the value, for a beta that is no probability, or lengths that differ.
        """
        if not len(self.position) == len(self.accepted) == len(self.beta):
            sizes = f"{len(self.position)}, {len(self.accepted)} and {len(self.beta)}"
            raise ValueError(f"position, accepted and beta have {sizes} entries: one each a trial")
        object.__setattr__(self, "beta", probabilities(self.beta, "beta"))

    @classmethod
    def of(cls, rounds: Sequence[Round], beta: Sequence[float] | Floats) -> Trials:
        """Lay the rounds of one output along its tokens.

        A position counts if its token is in the output, which only tokens before it decide: what
        the end cut off was never reached.

        Parameters
        ----------
        beta : sequence of float, one a token of the output

        Raises
        ------
        ValueError
            For rounds that are wrong (``wrong_rounds``), no tokens, or a beta outside [0, 1].
        """
        if len(beta) < 1:
            raise ValueError("an output of no tokens")
        if problem := wrong_rounds(rounds, len(beta), None):
            raise ValueError(problem)
        at, position, accepted, start = [], [], [], 0
        for entry in rounds:
            for i in range(min(entry.accepted + 1, entry.drafted, len(beta) - start)):
                at.append(start + i)
                position.append(i)
                accepted.append(i < entry.accepted)
            start += entry.accepted + 1
        values = np.asarray(beta, dtype=np.float64)[at]
        return cls(np.array(position, dtype=np.int64), np.array(accepted, dtype=np.bool_), values)

    @classmethod
    def joined(cls, parts: Sequence[Trials]) -> Trials:
        """Those of several outputs, at least one."""
        if not parts:
            raise ValueError("an empty list of trials")
        names = ("position", "accepted", "beta")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        """Number of trials."""
        return len(self.position)


def probabilities(values: Sequence[float] | Floats, name: str) -> Floats:
    """Check numbers in [0, 1], and clip what rounding put beyond.

    Raises
    ------
    ValueError
        Naming the value.
    """
    array = np.asarray(values, dtype=np.float64)
    within = (array >= -ROUNDING) & (array <= 1 + ROUNDING)  # which NaN is not
    if not within.all():
        raise ValueError(f"{name} is {array[~within][0]}: it must be in [0, 1]")
    clipped: Floats = array.clip(0, 1)
    return clipped
