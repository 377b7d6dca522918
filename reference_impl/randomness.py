"""All randomness of a decoder goes through two questions: ``flip`` and ``choice``.

``Seeded`` answers them with numbers; ``enumerate_outcomes`` answers them in every possible way
and so gives the exact law of whatever a decoder returns. ``Streams`` is ``Seeded`` for a batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor

Outcome = TypeVar("Outcome")


class Randomness(Protocol):
    """A source of randomness for one request."""

    def flip(self, probability: float) -> bool:
        """Answer True with the given probability (values above 1 count as 1)."""
        ...

    def choice(self, probabilities: Tensor) -> int:
        """Draw an index from unnormalised ``probabilities`` [V]."""
        ...


def inverse_cdf(probabilities: Tensor, u: Tensor) -> Tensor:
    """Draw one index a row by inverting the cumulative sum.

    Parameters
    ----------
    probabilities : Tensor [..., V], float
        Non-negative, need not be normalised, not all zero.
    u : Tensor [...], float64
        In [0, 1).

    Returns
    -------
    Tensor [...], int64
        Never an index of probability zero: the first whose cumulative sum exceeds ``u * total``.
    """
    cdf = probabilities.double().cumsum(-1)
    return torch.searchsorted(cdf, u.unsqueeze(-1) * cdf[..., -1:], right=True).squeeze(-1)


# Constants of SplitMix64 (Steele, Lea, Flood 2014), as signed 64-bit integers: torch has no
# unsigned multiplication, and two's complement wraps to the same bits.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's own is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Finaliser of SplitMix64: a bijection of 64-bit integers that looks random."""
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


class Streams:
    """One independent, counter-based stream of uniforms per row.

    Draw i of a row depends on the row's seed and i alone: not on the batch it is in, nor on the
    other rows. Rows without a seed get one from the operating system.

    Parameters
    ----------
    seeds : list of (int or None)
    device : torch.device
    """

    def __init__(self, seeds: list[int | None], device: torch.device | str = "cpu") -> None:
        chosen = [secrets.randbits(64) if seed is None else seed for seed in seeds]
        signed = [(seed + (1 << 63)) % (1 << 64) - (1 << 63) for seed in chosen]
        # Mixed twice with different offsets, so that seeds 0, 1, 2 are not shifted copies.
        key = torch.tensor(signed, dtype=torch.int64, device=device)
        self._key = _mix(_mix(key + _GOLDEN) + _MIX_1)
        self._drawn = torch.zeros_like(self._key)

    def uniform(self, count: int, used: Tensor | None = None) -> Tensor:
        """Draw ``count`` numbers per row.

        Parameters
        ----------
        count : int
        used : Tensor [B], int64, optional
            How many of them a row really uses; the rest are drawn again by its next call, so
            that a row's draws do not depend on what its neighbours need.

        Returns
        -------
        Tensor [B, count], float64
            In [0, 1), multiples of 2**-52: times a total they stay below it, which
            ``inverse_cdf`` relies on.
        """
        index = self._drawn.unsqueeze(1) + torch.arange(1, count + 1, device=self._key.device)
        self._drawn = self._drawn + (count if used is None else used)
        return _shift_right(_mix(self._key.unsqueeze(1) + index * _GOLDEN), 12).double() * 2.0**-52

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows (int64 indices)."""
        self._key, self._drawn = self._key[rows], self._drawn[rows]


class Seeded:
    """Pseudo-random answers for one request: a single row of ``Streams``."""

    def __init__(self, seed: int | None) -> None:
        self._stream = Streams([seed])

    def flip(self, probability: float) -> bool:
        """Answer True with the given probability."""
        return float(self._stream.uniform(1)) < probability

    def choice(self, probabilities: Tensor) -> int:
        """Draw an index from unnormalised ``probabilities`` [V]."""
        return int(inverse_cdf(probabilities.cpu(), self._stream.uniform(1)[0, 0]))


class _Scripted:
    """Follows a given list of answers, then always takes the first possible one."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.weight = 1.0
        self.taken: list[int] = []
        self.options: list[list[int]] = []

    def _answer(self, weights: list[float]) -> int:
        possible = [i for i, w in enumerate(weights) if w > 0]
        step = len(self.taken)
        answer = self.script[step] if step < len(self.script) else possible[0]
        self.taken.append(answer)
        self.options.append(possible)
        self.weight *= weights[answer]
        return answer

    def flip(self, probability: float) -> bool:
        p = min(1.0, max(0.0, probability))
        return self._answer([1 - p, p]) == 1

    def choice(self, probabilities: Tensor) -> int:
        p = probabilities.double()
        return self._answer((p / p.sum()).tolist())


def enumerate_outcomes(
    run: Callable[[Randomness], Outcome],
) -> Iterator[tuple[Outcome, float]]:
    """Run a decoder once for every way its randomness can fall.

    Parameters
    ----------
    run : callable
        Takes a ``Randomness`` and is otherwise deterministic.

    Yields
    ------
    (outcome, weight)
        The weights of all outcomes sum to 1; equal outcomes may come several times.
    """
    script: list[int] | None = []
    while script is not None:
        answers = _Scripted(script)
        outcome = run(answers)
        yield outcome, answers.weight
        script = _next_script(answers.taken, answers.options)


def _next_script(taken: list[int], options: list[list[int]]) -> list[int] | None:
    """Depth first: advance the last answer that has an alternative left."""
    for step in reversed(range(len(taken))):
        later = [option for option in options[step] if option > taken[step]]
        if later:
            return [*taken[:step], later[0]]
    return None
