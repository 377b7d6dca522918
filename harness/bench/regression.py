"""Two runs compared: what became of every decoder on every task.

A speedup is a ratio of two arms that took turns on one machine, so that two runs may be compared
even if the machine was faster in one of them. What is compared is the speedup of every prompt;
where both runs decoded the same prompts, prompt by prompt, so that what makes prompts differ drops
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.bench.columns import columns, groups
from harness.bench.estimate import CONFIDENCE, Estimate, geometric_mean, ratio_of_means
from harness.bench.row_figures import cost, plain_cost, timeable, unit
from harness.bench.row_figures import ratios_by_prompt as by_prompt
from harness.bench.summary import Losslessness, evidence_of, judge
from harness.record import GenerationRow, Header, Record
from harness.verdict import Status

MARGIN = 0.05
"""Share of a speedup that may be lost unnoticed: runs of the same code on one machine differ by a
few per cent, as memory, clock and neighbours do, and no interval over prompts can know of that.
Transformers' decoders in the records of 29 and 30 November 2026 on SmolLM2-135M (2 CPU cores, two
threads and one), whose code was the same, differ by up to 1% over all tasks and 4% on one."""

LOST, SLOWER, FASTER = "lossless no more", "regression", "faster"
WITHIN, UNDECIDED, NO_RESULT = "no regression", "undecided", "no result"
REGRESSIONS = (LOST, SLOWER)


@dataclass(frozen=True)
class Contrast:
    """One set of figures over another, in the geometric mean over prompts.

    Attributes
    ----------
    ratio : Estimate
    paired : bool
        Whether it is the mean of ratios prompt by prompt, or the ratio of two means.
    prompts : int
        Pairs; else prompts of the smaller set.
    """

    ratio: Estimate
    paired: bool
    prompts: int


@dataclass(frozen=True)
class Change:
    """One decoder on one task, in both runs.

    Attributes
    ----------
    old, new : Estimate or None
        Speedups, with 95% intervals; None where nothing could be timed.
    contrast : Contrast or None
        New over old; its intervals of all changes hold together with 95%.
    outcome : str
        One of the words above.
    """

    decoder: str
    task: str
    old: Estimate | None
    new: Estimate | None
    contrast: Contrast | None
    old_losslessness: Losslessness
    new_losslessness: Losslessness
    outcome: str


def incomparable(old: Header, new: Header) -> str:
    """Why the speedups of two runs have nothing to do with one another; empty where they have."""
    asked = [_what(header) for header in (old, new)]
    for name, before in asked[0].items():
        if before != asked[1][name]:
            return f"{name} was {before}, and is {asked[1][name]}"
    prints = [header.pair.fingerprint for header in (old, new)]
    if all(prints) and prints[0] != prints[1]:
        before, after = (found[:12] for found in prints)
        return f"the weights of {old.pair.name} had fingerprint {before}, and have {after}"
    return ""


def _what(header: Header) -> dict[str, object]:
    return {
        "the pair": header.pair.name,
        "the draft": header.options.get("draft_choice") or "right",
        "K": header.options.get("draft_tokens"),
        "the temperature": header.options.get("temperature"),
    }


def compare_runs(old: Record, new: Record, margin: float = MARGIN) -> list[Change]:
    """Every decoder and task that both runs have, in the order of the new one."""
    before, after = _groups(old), _groups(new)
    both = [key for key in after if key in before]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(both))  # Bonferroni: one alarm in twenty runs
    return [_change(key, before[key], after[key], margin, confidence) for key in both]


@dataclass(frozen=True)
class _Group:
    """One decoder on one task, of one run."""

    rows: list[GenerationRow]
    losslessness: Losslessness


def _groups(record: Record) -> dict[tuple[str, str], _Group]:
    found = columns(record.generations)
    lossy, evidence = record.header.options.get("declared_lossy", ()), evidence_of(record.verdicts)
    return {
        (decoder, task): _Group(
            found.rows_of(group), judge(group, decoder in lossy, evidence.get(decoder))
        )
        for decoder, task, group in groups(found, found.table, record.header.decoders)
    }


def _change(
    key: tuple[str, str],
    old: _Group,
    new: _Group,
    margin: float,
    confidence: float,
) -> Change:
    decoder, task = key
    before, after = _speedups(old.rows), _speedups(new.rows)
    found = contrast(after, before, _same_prompts(old.rows, new.rows), confidence)
    return Change(
        decoder=decoder,
        task=task,
        old=geometric_mean(list(before.values())) if before else None,
        new=geometric_mean(list(after.values())) if after else None,
        contrast=found,
        old_losslessness=old.losslessness,
        new_losslessness=new.losslessness,
        outcome=_outcome(old.losslessness, new.losslessness, found, margin),
    )


def _speedups(rows: Sequence[GenerationRow]) -> dict[tuple[str, str], float]:
    return by_prompt([row for row in rows if timeable(row)], plain_cost, cost)


def _same_prompts(
    old: Sequence[GenerationRow], new: Sequence[GenerationRow]
) -> set[tuple[str, str]]:
    """Prompts of the same name and length: files may use a name for another prompt."""
    known = {(*unit(row), row.prompt_tokens) for row in old}
    return {unit(row) for row in new if (*unit(row), row.prompt_tokens) in known}


def contrast(
    above: Mapping[tuple[str, str], float],
    below: Mapping[tuple[str, str], float],
    same: set[tuple[str, str]],
    confidence: float = CONFIDENCE,
) -> Contrast | None:
    """Figures by prompt, over others; None where one side has none.

    Paired where at least half of the smaller side's prompts are among ``same``, and on both sides:
    with fewer, leaving the others out costs more than pairing gains.
    """
    if not above or not below:
        return None
    fewer = min(len(above), len(below))
    shared = [prompt for prompt in above if prompt in below and prompt in same]
    if 2 * len(shared) >= fewer:
        ratios = [above[prompt] / below[prompt] for prompt in shared]
        return Contrast(geometric_mean(ratios, confidence), True, len(shared))
    ratio = ratio_of_means(list(above.values()), list(below.values()), confidence)
    return Contrast(ratio, False, fewer)


def _outcome(old: Losslessness, new: Losslessness, found: Contrast | None, margin: float) -> str:
    if old.status is Status.PASS and new.disqualifies:
        return LOST
    if old.disqualifies or new.disqualifies:
        return NO_RESULT
    if found is None or found.ratio.low is None or found.ratio.high is None:
        return UNDECIDED
    if found.ratio.high < 1 - margin:
        return SLOWER
    if found.ratio.low > 1:
        return FASTER
    return WITHIN if found.ratio.low >= 1 - margin else UNDECIDED
