"""First token, target calls and memory of both arms: pure functions of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from harness.bench.estimate import Estimate, geometric_mean
from harness.bench.summary import groups, prompt_ratios, timeable
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
    timed = [row for row in rows if timeable(row)]
    found = [_resources(decoder, task, group) for decoder, task, group in groups(timed, decoders)]
    return [of for of in found if of.told]


def _resources(decoder: str, task: str, rows: Sequence[GenerationRow]) -> Resources:
    def first(row: GenerationRow) -> float:
        return row.first_seconds or 0.0

    def plain_first(row: GenerationRow) -> float:
        return row.plain_first_seconds or 0.0

    streamed = [row for row in rows if first(row) and plain_first(row)]
    ratios = prompt_ratios(streamed, plain_first, first)
    return Resources(
        decoder=decoder,
        task=task,
        plain_first=median(map(plain_first, streamed)) if streamed else None,
        first=median(map(first, streamed)) if streamed else None,
        earlier=geometric_mean(ratios) if ratios else None,
        plain_calls=_calls(rows, lambda r: r.plain_counts, lambda r: r.plain_tokens),
        calls=_calls(rows, lambda r: r.counts, lambda r: r.tokens),
        plain_peak=max((r.plain_peak_bytes for r in rows if r.plain_peak_bytes), default=None),
        peak=max((r.peak_bytes for r in rows if r.peak_bytes), default=None),
    )


def _calls(
    rows: Sequence[GenerationRow],
    counts: Callable[[GenerationRow], dict[str, int]],
    tokens: Callable[[GenerationRow], list[int]],
) -> float | None:
    told = [row for row in rows if "target_calls" in counts(row)]
    if not told:
        return None
    return sum(counts(r)["target_calls"] for r in told) / sum(len(tokens(r)) for r in told)
