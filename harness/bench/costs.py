"""What speculation costs and could give: the cost model of Leviathan et al. 2023, measured.

One call of the target over one token is the unit. Where a drafted token costs c of it, a block v,
and a round gives tau tokens out of k drafts, speculation is tau / (v + c k) times as fast as plain
decoding, if nothing else takes time. What else does is the overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench.estimate import Estimate, geometric_mean
from harness.bench.summary import cost, groups, plain_cost, prompt_ratios, timeable
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
    told = [row for row in rows if tells(row)]
    return [_costs(decoder, task, group) for decoder, task, group in groups(told, decoders)]


def tells(row: GenerationRow) -> bool:
    """Whether a row says where both arms spent their time."""
    return bool(
        timeable(row)
        and row.drafted
        and sum(row.drafted)
        and row.plain_parts.get("verify")
        and all(row.parts.get(part) for part in PARTS)
    )


def ideal_plain_cost(row: GenerationRow) -> float:
    """Seconds per token that the plain arm's model calls take."""
    return sum(row.plain_parts.values()) / len(row.plain_tokens)


def ideal_cost(row: GenerationRow) -> float:
    """The same of the speculative arm."""
    return sum(row.parts.values()) / len(row.tokens)


def _costs(decoder: str, task: str, rows: Sequence[GenerationRow]) -> Costs:
    calls = sum(len(row.plain_tokens) for row in rows)  # a token each
    unit = sum(row.plain_parts["verify"] for row in rows) / calls
    rounds = sum(len(row.drafted or []) for row in rows)
    drafted = sum(sum(row.drafted or []) for row in rows)
    seconds = {part: sum(row.parts[part] for row in rows) for part in PARTS}
    total = sum(row.seconds for row in rows)
    ideal = prompt_ratios(rows, ideal_plain_cost, ideal_cost)
    measured = prompt_ratios(rows, plain_cost, cost)
    parts = {part: spent / total for part, spent in seconds.items()}
    return Costs(
        decoder=decoder,
        task=task,
        draft=seconds["draft"] / drafted / unit,
        verify=seconds["verify"] / rounds / unit,
        drafted=drafted / rounds,
        length=sum(len(row.tokens) for row in rows) / rounds,
        ideal=geometric_mean(ideal),
        share=geometric_mean([m / i for m, i in zip(measured, ideal, strict=True)]),
        parts=parts | {"other": 1 - sum(parts.values())},
    )
