"""First token, target calls and memory of both arms: pure functions of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.bench.columns import Table, by_unit, columns, groups
from harness.bench.estimate import Estimate, geometric_mean
from harness.record import GenerationRow


@dataclass(frozen=True)
class Resources:
    """One decoder on one task; None for what it, or the device, does not tell.

    Attributes
    ----------
    plain_first, first : float or None
        Median seconds to the first token.
    earlier : Estimate or None
        Their ratio, plain over speculative: geometric mean over prompts.
    plain_calls, calls : float or None
        Target calls a token, those that only read the prompt left out.
    plain_peak, peak : int or None
        Largest of the peaks of memory, in bytes.
    """

    decoder: str
    task: str
    plain_first: float | None
    first: float | None
    earlier: Estimate | None
    plain_calls: float | None
    calls: float | None
    plain_peak: int | None
    peak: int | None

    @property
    def told(self) -> bool:
        """Whether there is anything to show."""
        return not (self.earlier is None and self.calls is None and self.peak is None)


def resources(rows: Sequence[GenerationRow], decoders: Sequence[str]) -> list[Resources]:
    """Every decoder that tells something: task by task, then over all tasks."""
    found = columns(rows)
    told = [
        _resources(decoder, task, group, found.rows_of(group))
        for decoder, task, group in groups(found, found.table.timed, decoders)
    ]
    return [of for of in told if of.told]


def _resources(decoder: str, task: str, group: Table, rows: Sequence[GenerationRow]) -> Resources:
    streamed = group.where((group["first"] > 0) & (group["plain_first"] > 0))
    plain_first, first = streamed["plain_first"], streamed["first"]
    return Resources(
        decoder=decoder,
        task=task,
        plain_first=float(np.median(plain_first)) if len(streamed) else None,
        first=float(np.median(first)) if len(streamed) else None,
        earlier=geometric_mean(by_unit(streamed, plain_first / first)) if len(streamed) else None,
        plain_calls=_calls((row.plain_counts, len(row.plain_tokens)) for row in rows),
        calls=_calls((row.counts, len(row.tokens)) for row in rows),
        plain_peak=max((r.plain_peak_bytes for r in rows if r.plain_peak_bytes), default=None),
        peak=max((r.peak_bytes for r in rows if r.peak_bytes), default=None),
    )


def _calls(told: Iterable[tuple[dict[str, int], int]]) -> float | None:
    """Target calls a token, of pairs of counts and tokens."""
    pairs = [(counts["target_calls"], n) for counts, n in told if "target_calls" in counts]
    return sum(calls for calls, _ in pairs) / sum(n for _, n in pairs) if pairs else None
