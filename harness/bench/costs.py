"""What speculation costs and could give: the cost model of Leviathan et al. 2023, measured.

One call of the target over one token is the unit. Where a drafted token costs c of it, a block v,
and a round gives tau tokens out of k drafts, speculation is tau / (v + c k) times as fast as plain
decoding, if nothing else takes time. What else does is the overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.bench.columns import Table, by_unit, columns, groups, ratios
from harness.bench.estimate import Estimate, geometric_mean
from harness.record import PARTS, GenerationRow


@dataclass(frozen=True)
class Costs:
    """Where the time of one decoder goes on one task.

    Attributes
    ----------
    draft : float
        c, a drafted token; in target calls over one token, as is:
    verify : float
        v, a target call over a block.
    drafted : float
        k, drafted tokens a round.
    length : float
        tau, tokens a round.
    ideal : Estimate
        Speedup if only the models' calls took time, the prompt's included.
    share : Estimate
        Of it that was measured.
    parts : dict of str to float
        Shares of the speculative arm's seconds: ``prompt``, ``draft``, ``verify``, ``other``.
    """

    decoder: str
    task: str
    draft: float
    verify: float
    drafted: float
    length: float
    ideal: Estimate
    share: Estimate
    parts: dict[str, float]


def costs(rows: Sequence[GenerationRow], decoders: Sequence[str]) -> list[Costs]:
    """Every decoder that tells its parts: task by task, then over all tasks."""
    found = columns(rows)
    told = telling(found.table)
    return [_costs(decoder, task, group) for decoder, task, group in groups(found, told, decoders)]


def telling(table: Table) -> Table:
    """The rows that say where both arms spent their time."""
    told = table["timeable"] & (table["drafted"] > 0) & (table["plain_verify_part"] > 0)
    return table.where(told & np.all([table[f"{part}_part"] > 0 for part in PARTS], 0))


def _costs(decoder: str, task: str, group: Table) -> Costs:
    calls = group["plain_tokens"].sum()  # a token each
    unit = group["plain_verify_part"].sum() / calls
    rounds, drafted = group["rounds"].sum(), group["drafted"].sum()
    seconds = {part: group[f"{part}_part"].sum() for part in PARTS}
    plain, speculative = (
        group[f"{arm}parts"] / group[f"{arm}tokens"] for arm in ("plain_", "")
    )  # seconds a token that the models' calls take
    ideal = by_unit(group, plain / speculative)
    parts = {part: float(spent / group["seconds"].sum()) for part, spent in seconds.items()}
    return Costs(
        decoder=decoder,
        task=task,
        draft=float(seconds["draft"] / drafted / unit),
        verify=float(seconds["verify"] / rounds / unit),
        drafted=float(drafted / rounds),
        length=float(group["tokens"].sum() / rounds),
        ideal=geometric_mean(ideal),
        share=geometric_mean(ratios(group) / ideal),
        parts=parts | {"other": 1 - sum(parts.values())},
    )
