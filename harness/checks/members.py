"""The chi-square family of one sample: what is counted, and the law that the counts follow.

Each member is a table of counts with exactly known cell probabilities if the decoder is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from harness import oracle
from harness.checks.continuations import TOKENS, Floats, Laws, position
from harness.contract import Request, Round
from harness.models import ModelPair
from harness.stats import chi_square, pit
from harness.verdict import FaultClass

Ints = NDArray[np.int64]
STATISTICS = ("pearson", "log-likelihood")


@dataclass(frozen=True)
class Sample:
    """What one arm of a decoder answered.

    Attributes
    ----------
    outputs : ndarray [N, TOKENS], int64
        The first tokens of all outputs.
    longer : ndarray [M, max(TOKENS, K + 2)], int64
        More tokens of the first M of them.
    rounds : list of M lists of Round, or None
        None where the decoder does not report them.
    calls : ndarray [C, R], int64
        First token of row r of call c: the same request, without a seed; C is even.
    """

    outputs: Ints
    longer: Ints
    rounds: list[list[Round]] | None
    calls: Ints


@dataclass(frozen=True)
class Member:
    """One table of counts.

    Attributes
    ----------
    name : str
    counts : ndarray [cells], int64
    law : ndarray [cells]
        Of the cells if the decoder is right.
    direction : ndarray [cells]
        Of the cells under the fault whose smallest visible share is stated.
    share : str
        What that is a share of.
    hint : str
        The fault that this member is for.
    kind : FaultClass or None
        The part of a decoder that has it.
    """

    name: str
    counts: Ints
    law: Floats
    direction: Floats
    share: str
    hint: str = ""
    kind: FaultClass | None = None

    def results(self) -> dict[str, chi_square.Result]:
        """Each statistic's test."""
        return {
            f"{self.name}, {statistic}": chi_square.goodness_of_fit(
                self.counts, self.law, statistic
            )
            for statistic in STATISTICS
        }

    def smallest(self, alpha: float, power: float) -> float:
        """Smallest visible share, infinite if nothing is."""
        samples = int(self.counts.sum())
        return chi_square.smallest(self.law, self.direction, samples, alpha, power)

    def evidence(self, alpha: float, power: float) -> dict[str, object]:
        """What was found, in JSON types."""
        results = self.results()
        seen = self.smallest(alpha, power)
        return {
            "p_values": {s: results[f"{self.name}, {s}"].p_value for s in STATISTICS},
            "degrees": next(iter(results.values())).degrees,
            "samples": int(self.counts.sum()),
            "smallest_share": None if math.isinf(seen) else seen,
        }


def of_outputs(sample: Sample, laws: Laws, vocab: int) -> Iterator[Member]:
    """The joint law of the first tokens, and the law at each position."""
    share = f"tokens {laws.source}"
    base = vocab ** np.arange(TOKENS - 1, -1, -1)
    joint = np.bincount(sample.outputs @ base, minlength=vocab**TOKENS)
    yield Member(f"{TOKENS} tokens", joint, laws.joint, laws.elsewhere, share)
    for i in range(TOKENS):
        counts = np.bincount(sample.outputs[:, i], minlength=vocab)
        law, direction = (position(cells, vocab, i) for cells in (laws.joint, laws.elsewhere))
        yield Member(f"token {i}", counts, law, direction, share)


def of_lag(sample: Sample, laws: Laws, lag: int, vocab: int) -> Iterator[Member]:
    """Pairs of tokens a full round apart: noise that a round takes over from the one before."""
    if laws.lagged is not None:
        yield Member(
            f"tokens 0 and {lag}",
            _pairs(sample.longer[:, 0], sample.longer[:, lag], vocab),
            laws.lagged,
            np.diag(laws.first).ravel(),
            f"outputs that repeat token 0 at token {lag}",
            "a round reuses the noise of the one before",
            FaultClass.RANDOMNESS,
        )


def of_calls(calls: Ints, first: Floats) -> Iterator[Member]:
    """Consecutive calls, and neighbouring rows of a call, are independent: disjoint pairs."""
    independent, same = np.outer(first, first).ravel(), np.diag(first).ravel()
    if calls.size:
        yield Member(
            "consecutive calls",
            _pairs(calls[0::2].ravel(), calls[1::2].ravel(), len(first)),
            independent,
            same,
            "answers that repeat the call before",
            "the generator is restarted, or shared between calls",
            FaultClass.RANDOMNESS,
        )
    rows = calls.shape[1] // 2 * 2
    if calls[:, :rows].size:
        yield Member(
            "neighbouring rows",
            _pairs(calls[:, 0:rows:2].ravel(), calls[:, 1:rows:2].ravel(), len(first)),
            independent,
            same,
            "answers that repeat the row before",
            "rows of a batch share their noise",
            FaultClass.RANDOMNESS,
        )


def of_seeds(outputs: Ints, laws: Laws, vocab: int) -> Iterator[Member]:
    """Outputs [N, TOKENS] of the same request under N consecutive seeds."""
    yield next(of_outputs(Sample(outputs, outputs, None, outputs[:0]), laws, vocab))
    for lag in (1, 2):
        rows = len(outputs) // (2 * lag) * 2 * lag
        first = outputs[:rows, 0].reshape(-1, 2, lag)
        yield Member(
            f"seeds {lag} apart",
            _pairs(first[:, 0].ravel(), first[:, 1].ravel(), vocab),
            np.outer(laws.first, laws.first).ravel(),
            np.diag(laws.first).ravel(),
            f"answers that repeat those of the seed {lag} before",
            "neighbouring seeds give related draws",
            FaultClass.RANDOMNESS,
        )


def _pairs(one: Ints, other: Ints, vocab: int) -> Ints:
    return np.bincount(one * vocab + other, minlength=vocab**2)


def of_rounds(
    sample: Sample, starts: Ints, pair: ModelPair, request: Request, seed: int
) -> Iterator[Member]:
    """The first token of the round after one that accepted a tokens, for each a.

    Given everything before it, it follows p: a round that begins owes nothing to how the last one
    ended. That holds for every exact decoder that starts its rounds afresh, whatever its rule of
    acceptance (token by token, by block, by equality with a draw of the target's). The tokens of
    the *same* round would not do: how many are accepted says something about which they are.

    The contexts differ, so the tokens are pooled by their randomised PIT.

    Parameters
    ----------
    starts : ndarray [K + 1, M], int64
        As ``round_starts`` gives them. Those of the speculative arm serve the plain one as well:
        there they are positions picked by chance, whose tokens follow p too.
    """
    answers = [oracle.Answer(request, tokens) for tokens in sample.longer.tolist()]
    scored = [rows.p for rows in oracle.score(pair, answers, draft=False)]
    p = torch.cat(scored).view(*sample.longer.shape, pair.vocab_size).cpu().numpy()
    noise = np.random.default_rng(seed).random(starts.shape)
    for accepted, at in enumerate(starts):
        row = np.flatnonzero(at >= 0)
        if not len(row):
            continue
        contexts = p[row, at[row]]
        values = pit.pit(contexts, sample.longer[row, at[row]], noise[accepted, row])
        yield Member(
            f"after {accepted} accepted",
            pit.binned(values),
            pit.uniform(),
            pit.bin_probabilities(contexts, p[row, at[row] - 1]),
            "tokens that follow the law of the token before",
            f"what a round with {accepted} accepted tokens leaves to the next one",
            FaultClass.CACHE,
        )


def round_starts(
    rounds: Sequence[Sequence[Round]], draft_tokens: int, tokens: int, length: int
) -> Ints | None:
    """Where the round after the first one that accepted a tokens begins, in each output.

    Only after the first such round of an output: whether there is one is settled before its token
    is drawn, and outputs are independent, so the counts are multinomial. How often there are more
    would depend on that token.

    Parameters
    ----------
    tokens : int
        Length of every output.
    length : int
        How many of its tokens may be used.

    Returns
    -------
    ndarray [K + 1, M], int64, or None
        -1 where there is no such round. None if the rounds do not add up to the tokens.
    """
    starts = np.full((draft_tokens + 1, len(rounds)), -1)
    for row, entries in enumerate(rounds):
        at = 0
        for entry in entries:
            if at >= tokens or not 0 <= entry.accepted <= draft_tokens:
                return None
            at += entry.accepted + 1
            if at < length and starts[entry.accepted, row] < 0:
                starts[entry.accepted, row] = at
        if at < tokens:
            return None
    return starts
