"""Decoders against one another, on the same prompts of the same run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.bench.columns import by_unit, columns
from harness.bench.estimate import Estimate, geometric_mean
from harness.bench.summary import Losslessness, judge
from harness.record import GenerationRow
from harness.verdict import Status

BASELINE_PREFIX = "transformers-"


@dataclass(frozen=True)
class Comparison:
    """One decoder against the plain arm of the baseline.

    Attributes
    ----------
    plain, speculative : Estimate
        How many times fewer seconds a token than the baseline's plain decoding.
    same_text : int
        Prompts (and repeats) where the plain ids are the baseline's plain ids.
    total : int
    losslessness : Losslessness
        Of the speculative outputs.
    """

    decoder: str
    baseline: str
    plain: Estimate
    speculative: Estimate
    same_text: int
    total: int
    losslessness: Losslessness


def baseline_of(decoders: Sequence[str]) -> str | None:
    """The decoder whose plain arm the others are compared with: the first of transformers'."""
    return next((name for name in decoders if name.startswith(BASELINE_PREFIX)), None)


def compare(
    rows: Sequence[GenerationRow],
    decoders: Sequence[str],
    declared_lossy: Collection[str] = (),
    evidence: Mapping[str, Status] | None = None,
) -> list[Comparison]:
    """Every decoder on the prompts that it and the baseline were both timed on."""
    baseline = baseline_of(decoders)
    if baseline is None:
        return []
    found = columns(rows)
    plain = np.full((2, found.trials), np.nan)  # cost and text by trial
    base = found.of_decoder(baseline).timed
    plain[:, base["trial"]] = base["plain_cost"], base["text"]
    comparisons = []
    for decoder in decoders:
        own = found.of_decoder(decoder)
        shared = own.where(own["timeable"] & ~np.isnan(plain[0, own["trial"]]))
        costs, texts = plain[:, shared["trial"]]
        if not len(shared):
            continue
        comparisons.append(
            Comparison(
                decoder=decoder,
                baseline=baseline,
                plain=geometric_mean(by_unit(shared, costs / shared["plain_cost"])),
                speculative=geometric_mean(by_unit(shared, costs / shared["cost"])),
                same_text=int((texts == shared["text"]).sum()),
                total=len(shared),
                losslessness=judge(own, decoder in declared_lossy, (evidence or {}).get(decoder)),
            )
        )
    return comparisons
