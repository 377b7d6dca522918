"""Probability integral transform of tokens drawn after different contexts.

A token x drawn from p becomes v = F(x-) + u p(x), with F the cumulative sum over tokens ordered by
falling probability, F(x-) the part before x, and u uniform in [0, 1) and independent of x. Then v
is uniform in [0, 1) whatever p is (the randomised transform: Brockwell 2007, "Universal residuals",
Statistics & Probability Letters 77), so tokens of contexts that never repeat can be counted
together. Few likely tokens stand at 0, many unlikely ones at 1: the order makes a law that is too
sharp or too flat show as a slope.

A trio, by way of ``chi_square``: ``uniformity`` decides, ``smallest`` and ``samples_needed`` say
what it sees, from the exact bins of an alternative law (``bin_probabilities``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.stats import chi_square

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BINS = 8
ELEMENTS_AT_ONCE = 1 << 22  # of the laws: 32 MB, however large the vocabulary


def _checked(laws: Floats, name: str) -> Floats:
    laws = np.asarray(laws, dtype=np.float64)
    if laws.ndim != 2 or not laws.shape[1]:
        raise ValueError(f"{name} has shape {laws.shape}: it must be [tokens, vocabulary]")
    if not len(laws):
        raise ValueError(f"no rows of {name}")
    wrong = laws[~(np.isfinite(laws) & (laws >= 0))]
    if len(wrong):
        raise ValueError(f"a probability of {name} is {wrong[0]}: it must be finite, not negative")
    total = laws.sum(1, keepdims=True)
    worst = int(np.abs(total - 1).argmax())
    if abs(total[worst, 0] - 1) > 1e-4:
        raise ValueError(f"row {worst} of {name} sums to {total[worst, 0]:.6g}, not 1")
    normalised: Floats = laws / total
    return normalised


def _chunks(laws: Floats) -> list[slice]:
    rows, vocab = laws.shape
    step = max(1, ELEMENTS_AT_ONCE // vocab)
    return [slice(first, first + step) for first in range(0, rows, step)]


def pit(p: Floats, tokens: Ints, u: Floats) -> Floats:
    """Transform tokens to what is uniform if they were drawn from their laws.

    Parameters
    ----------
    p : ndarray [n, V], float64
        Law of each token given everything before it.
    tokens : ndarray [n], int64
    u : ndarray [n], float64
        In [0, 1), drawn independently of the tokens.

    Returns
    -------
    ndarray [n], float64
        In [0, 1]. A token of probability zero, which the support check is for, stands at 1.

    Raises
    ------
    ValueError
        Naming the value: a probability that is NaN or negative, a row that does not sum to 1, a
        token outside the vocabulary, a u outside [0, 1), shapes that do not fit, no rows at all.
    """
    p, tokens, u = _checked(p, "p"), np.asarray(tokens), np.asarray(u, dtype=np.float64)
    rows, vocab = p.shape
    if tokens.shape != (rows,) or u.shape != (rows,):
        raise ValueError(f"{tokens.shape} tokens and {u.shape} numbers u for laws {p.shape}")
    wrong = tokens[(tokens < 0) | (tokens >= vocab)]
    if len(wrong):
        raise ValueError(f"token {wrong[0]} is outside the vocabulary 0..{vocab - 1}")
    outside = u[~((u >= 0) & (u < 1))]
    if len(outside):
        raise ValueError(f"u is {outside[0]}: it must be in [0, 1)")
    own = p[np.arange(rows), tokens]
    before = np.empty(rows)
    for cut in _chunks(p):
        law, likely = p[cut], own[cut, None]
        ahead = law > likely
        ahead |= (law == likely) & (np.arange(vocab) < tokens[cut, None])  # ties: by id
        before[cut] = np.where(ahead, law, 0.0).sum(1)
    values: Floats = np.minimum(before + u * own, 1.0)
    return values


def uniformity(values: Floats, bins: int = BINS, statistic: str = "pearson") -> chi_square.Result:
    """Test whether ``values`` [n] are uniform in [0, 1], by chi-square on equal bins.

    Raises
    ------
    ValueError
        Naming the value: no values, one outside [0, 1], fewer than one bin.
    """
    return chi_square.goodness_of_fit(binned(values, bins), uniform(bins), statistic)


def binned(values: Floats, bins: int = BINS) -> Ints:
    """Count ``values`` [n] in equal bins of [0, 1], [bins]; 1 belongs to the last."""
    values = np.asarray(values, dtype=np.float64)
    outside = values[~((values >= 0) & (values <= 1))]
    if len(outside):
        raise ValueError(f"a transformed token is {outside[0]}: it must be in [0, 1]")
    _check_bins(bins)
    cells = np.minimum((values * bins).astype(np.int64), bins - 1)
    return np.bincount(cells, minlength=bins)


def uniform(bins: int = BINS) -> Floats:
    """Law of the bins if the tokens follow their laws, [bins]."""
    _check_bins(bins)
    return np.full(bins, 1 / bins)


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"{bins} bins: there must be at least 1")


def bin_probabilities(p: Floats, alternative: Floats, bins: int = BINS) -> Floats:
    """Exact law of the bins if the tokens come from another law, averaged over the contexts.

    Within the interval of a token v is uniform under any law, so the cumulative law of v is the
    polygon through (F(x), A(x)), the cumulative sums of p and of the alternative in p's order.

    Parameters
    ----------
    p, alternative : ndarray [n, V], float64

    Returns
    -------
    ndarray [bins], float64
    """
    p, alternative = _checked(p, "p"), _checked(alternative, "the alternative")
    if p.shape != alternative.shape:
        raise ValueError(f"alternative laws {alternative.shape} for laws {p.shape}")
    edges = np.arange(1, bins) / bins
    total = np.zeros(bins - 1)
    for cut in _chunks(p):
        order = np.argsort(-p[cut], axis=1, kind="stable")
        below = np.take_along_axis(p[cut], order, 1).cumsum(1)
        reached = np.take_along_axis(alternative[cut], order, 1).cumsum(1)
        for f, a in zip(below, reached, strict=True):
            # The rounded sum may end a little below 1, and what p forbids stands at 1 itself.
            possible = int(np.searchsorted(f, f[-1])) + 1
            total += np.interp(edges, np.append(0.0, f[:possible]), np.append(0.0, a[:possible]))
    law = np.diff([0.0, *(total / len(p)), 1.0]).clip(min=0)
    normalised: Floats = law / law.sum()
    return normalised


def samples_needed(
    p: Floats,
    alternative: Floats,
    alpha: float,
    wanted: float = 0.99,
    most: int = 10_000_000,
    bins: int = BINS,
) -> int:
    """Tokens it takes to find that laws [n, V] like ``alternative`` were drawn from, not ``p``."""
    law = bin_probabilities(p, alternative, bins)
    return chi_square.samples_needed(uniform(bins), law, alpha, wanted, most)


def smallest(
    p: Floats, direction: Floats, samples: int, alpha: float, wanted: float = 0.99, bins: int = BINS
) -> float:
    """Smallest share of tokens drawn from ``direction`` [n, V] instead of ``p`` that is found.

    Infinite if even all of them would not be: as if ``direction`` only moves mass within bins.
    """
    law = bin_probabilities(p, direction, bins)
    return chi_square.smallest(uniform(bins), law, samples, alpha, wanted)
