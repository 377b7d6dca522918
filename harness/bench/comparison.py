"""Decoders against one another, on the same prompts of the same run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.bench.estimate import Estimate, geometric_mean
from harness.bench.summary import Losslessness, cost, judge, plain_cost, prompt_ratios, timeable
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
    plain = {_key(row): row for row in rows if row.decoder == baseline and timeable(row)}

    def base(row: GenerationRow) -> float:
        return plain_cost(plain[_key(row)])

    found = []
    for decoder in decoders:
        ours = [row for row in rows if row.decoder == decoder]
        shared = [row for row in ours if timeable(row) and _key(row) in plain]
        if not shared:
            continue
        found.append(
            Comparison(
                decoder=decoder,
                baseline=baseline,
                plain=geometric_mean(prompt_ratios(shared, base, plain_cost)),
                speculative=geometric_mean(prompt_ratios(shared, base, cost)),
                same_text=sum(r.plain_tokens == plain[_key(r)].plain_tokens for r in shared),
                total=len(shared),
                losslessness=judge(ours, decoder in declared_lossy, (evidence or {}).get(decoder)),
            )
        )
    return found


def _key(row: GenerationRow) -> tuple[str, str, int]:
    return row.task, row.prompt_id, row.repeat
