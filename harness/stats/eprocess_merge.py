"""Wealth of shards: e-processes of one test that ran apart, on other outputs, as one.

Experts keep their weights, and each expert's wealth is multiplied over the shards, before the
weighted mean is taken: E = sum_j w_j prod_s E_{j,s}. Weights are paid once, not once a shard, which
is what prod_s sum_j w_j E_{j,s} would do (also an e-value, and a smaller one where one fault is in
all shards).

*Fixed bets* (all experts but the learned tilt): an expert's law depends on the context alone, so
the merged wealth is that of one process which saw all the shards' tokens, exactly, in whatever
order (but for the rounding of a sum of logarithms).

*The learned tilt* learns from its own shard's past alone, and one process would have learned from
all of it. Its merged wealth is another number. It is an e-value nevertheless: in whatever order
the shards' tokens are put, each bet is fixed before its token, and fair, so the product is a
nonnegative martingale that starts at 1, and so is the mean over experts (Vovk and Wang 2021,
"E-values: calibration, combination and applications", on products of sequential e-values).

Both hold where the outputs of a shard are draws from the target's law whatever the other shards
said: shards must not share seeds. A shard that is merged twice would square its wealth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from harness.stats.certificate import Certificate
from harness.stats.eprocess import EProcess, from_numbers, numbers
from harness.stats.paired_bets import PairedBets

State = Mapping[str, Any]


def merge(process: EProcess, shards: Mapping[str, State]) -> None:
    """Continue a process of no tokens from the states of its shards.

    What was the largest wealth is looked at after each shard, in their order, which must not depend
    on their wealth: after all of the first, after all of the second as well, and so on. Within a
    shard only the first one's own largest counts, for the others began with the wealth of those
    before them. If it goes on, the tilt is that of the shard that has seen the most tokens.

    Parameters
    ----------
    process : EProcess
        Of the same experts as the shards.
    shards : mapping of str to dict
        ``EProcess.state()`` of each, by its name.

    Raises
    ------
    ValueError
        If a process has seen tokens, there are no shards, or one is of other experts.
    """
    if process.tokens:
        raise ValueError(f"a process of {process.tokens} tokens: shards are merged into a new one")
    if not shards:
        raise ValueError("no shards to merge")
    states = list(shards.values())
    named = [expert.says for expert in process.experts]
    for name, state in shards.items():
        if state["experts"] != named:
            raise ValueError(f"shard {name} is of other experts than this process")
    first, threshold = states[0], -math.log(process.alpha)
    wealths = torch.zeros(len(named), dtype=torch.float64)
    tokens, largest, crossed_at = 0, first["largest"], first["crossed_at"]
    for state in states:
        wealths = wealths + from_numbers(state["log_wealths"])
        tokens += state["tokens"]
        now = float((process.log_weights + wealths).logsumexp(0))
        largest = max(largest, now)
        if crossed_at is None and now >= threshold:
            crossed_at = tokens
    longest = max(states, key=lambda state: state["tokens"])
    explained = zip(*(state["explained"] for state in states), strict=True)
    process.resume(
        {
            "experts": named,
            "log_wealths": numbers(wealths),
            "tokens": tokens,
            "impossible": sum(state["impossible"] for state in states),
            "near": sum(state["near"] for state in states),
            "explained": [sum(values) for values in explained],
            "largest": largest,
            "crossed_at": crossed_at,
            "groups": _groups([state["groups"] for state in states]),
            "tilt": longest["tilt"],
        }
    )


def merge_pairs(states: Sequence[State]) -> PairedBets:
    """Comparisons of two arms as one: exactly that of all pairs.

    Bets of a fixed scale add up, and what is bet on signs depends on how many there were of each
    (Krichevsky and Trofimov 1981), not on their order. The peak is looked at after each shard.
    """
    state = dict(states[0])
    for more in states[1:]:
        for name in ("sums", "signs"):
            state[name] = (np.array(state[name]) + np.array(more[name])).tolist()
        state["pairs"] += more["pairs"]
        bets = PairedBets.resume(state)
        state["peak"] = max(state["peak"], bets.log_wealth)
    return PairedBets.resume(state)


def merge_certificates(certificate: Certificate, states: Sequence[State]) -> None:
    """Continue a new confidence sequence from its shards', looked at after each of them."""
    certificate.resume(dict(states[0]))
    for state in states[1:]:
        certificate.log_wealths = certificate.log_wealths + from_numbers(state["log_wealths"])
        certificate.look()


def _groups(states: Sequence[Mapping[str, Mapping[str, list[float | None]]]]) -> dict[str, Any]:
    """Sums by group and label."""
    sums: dict[str, dict[str, torch.Tensor]] = {}
    for groups in states:
        for name, labels in groups.items():
            mine = sums.setdefault(name, {})
            for label, values in labels.items():
                more = from_numbers(values)
                mine[label] = mine[label] + more if label in mine else more
    return {n: {label: numbers(v) for label, v in mine.items()} for n, mine in sums.items()}
