"""A run beside an earlier one: a section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.bench.regression import (
    LOST,
    REGRESSIONS,
    Change,
    compare_runs,
    incomparable,
)
from harness.command_line import BadInput
from harness.record import Header, Record
from harness.report.benchmark import FEW_PROMPTS, figure, verdict
from harness.report.conformance import listed
from harness.report.document import Cell, Notes, Section, Table
from harness.report.options import Options

HOW = (
    "change: speedup of the new run / speedup of the old one, with an interval (BCa bootstrap over "
    "prompts); the {count} intervals of this table hold together with 95%"
)
PAIRED = (
    "paired: both runs decoded the same prompts, and ratios are taken prompt by prompt; two "
    "samples: they did not, so that the prompts of both are resampled"
)
MEANING = (
    "regression: the interval lies wholly below {limit:g}; lossless no more is one as well; no "
    "regression: wholly at {limit:g} or above; faster: wholly above 1; undecided: neither, and "
    "more prompts would tell; no result: some of the outputs were not lossless before"
)
ADVICE = "measure both with the same, then compare"


def section(old: Record, new: Record, margin: float) -> Section:
    """What became of every decoder and task.

    Raises
    ------
    BadInput
        If the runs cannot be compared, or have nothing in common.
    """
    if reason := incomparable(old.header, new.header):
        raise BadInput(f"--compare: {reason}: {ADVICE}")
    changes = compare_runs(old, new, margin)
    if not changes:
        raise BadInput("--compare: the two records have no decoder and task in common")
    found = Section(
        f"Compared with the run of {old.header.started}",
        [
            ("old", f"{old.header.started}: {old.header.command}"),
            ("new", f"{new.header.started}: {new.header.command}"),
        ],
        [_table(changes)],
        figures={"changes": changes},
    )
    if worse := [change for change in changes if change.outcome in REGRESSIONS]:
        found.notes.append(Notes("Regressions", [words(change) for change in worse]))
    told = unlike(old.header, new.header) + _missing(old, new) + _problems(old)
    if told:
        found.notes.append(Notes("Differences between the runs", listed(told)))
    how = [HOW.format(count=len(changes)), PAIRED, MEANING.format(limit=1 - margin)]
    fewest = min((of.contrast.prompts for of in changes if of.contrast), default=FEW_PROMPTS)
    if fewest < FEW_PROMPTS:
        how.append(f"intervals over few prompts (here {fewest} in some rows) are too narrow")
    found.notes.append(Notes("How to read it", how))
    return found


def check_asked(old: Record, options: Options) -> None:
    """Raise BadInput where a run that is asked for could not be compared, before it is measured."""
    asked = old.header.options | {
        "draft_tokens": options.draft_tokens,
        "temperature": options.temperature,
        "draft_choice": options.draft_choice,
    }
    pair = old.header.pair
    if not options.target:  # the name of a pair of one's own is known once it is loaded
        pair = msgspec.structs.replace(pair, name=options.pair)
    new = msgspec.structs.replace(old.header, options=asked, pair=pair)
    if reason := incomparable(old.header, new):
        raise BadInput(f"--compare: {reason}: {ADVICE}")


def regressed(found: Section) -> bool:
    """Whether a section of two runs has a regression in it."""
    return any(change.outcome in REGRESSIONS for change in found.figures.get("changes", ()))


def _table(changes: Sequence[Change]) -> Table:
    columns = ["task", "decoder", "lossless", "old", "new", "change", "prompts", "outcome"]
    return Table("New speedup over old speedup", columns, [_row(change) for change in changes])


def _row(change: Change) -> list[Cell]:
    found = change.contrast
    before, after = verdict(change.old_losslessness), verdict(change.new_losslessness)
    return [
        change.task,
        change.decoder,
        after if before == after else f"{after} (was {before})",
        figure(change.old, change.old_losslessness),
        figure(change.new, change.new_losslessness),
        figure(found.ratio) if found else "-",
        f"{found.prompts} {'paired' if found.paired else 'two samples'}" if found else "-",
        change.outcome,
    ]


def words(change: Change) -> str:
    """A regression in a sentence."""
    where = f"{change.decoder}, {change.task}"
    if change.outcome == LOST:
        before, after = change.old_losslessness, change.new_losslessness
        return f"{where}: {LOST}: {verdict(before)}, now {verdict(after)}"
    assert change.contrast
    ratio = figure(change.contrast.ratio)
    was, now = figure(change.old), figure(change.new)
    return f"{where}: the speedup was {was}, and is {now}; new / old {ratio}"


def unlike(old: Header, new: Header) -> list[str]:
    """What differs between two runs that are compared all the same."""
    lines = []
    for what, before, after in (
        ("dtype", old.pair.dtype, new.pair.dtype),
        ("device", old.pair.device, new.pair.device),
        *_items("machine", old.machine, new.machine),
        *_items("version", old.versions, new.versions),
        *_items("option", _options(old), _options(new)),
        ("seed", old.seed, new.seed),
    ):
        if before != after:
            lines.append(f"{what}: {_said(before)}, now {_said(after)}")
    return lines


def _options(header: Header) -> dict[str, object]:
    """Those that are not compared otherwise, and can be expected to be the same."""
    apart = {"draft_tokens", "temperature", "draft_choice", "memory", "load_average", "size"}
    apart |= {"declared_lossy", "sweep"}
    return {name: value for name, value in header.options.items() if name not in apart}


def _items(
    kind: str, old: Mapping[str, object], new: Mapping[str, object]
) -> list[tuple[str, object, object]]:
    return [(f"{kind}, {name}", old.get(name), new.get(name)) for name in {**old, **new}]


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not given" if value in (None, "", {}) else str(value)


def _missing(old: Record, new: Record) -> list[str]:
    """Decoders and tasks that only one of them measured: nothing is concluded about these."""
    lines = []
    for what, name in (("decoder", "decoder"), ("task", "task")):
        before, after = (
            dict.fromkeys(getattr(row, name) for row in record.generations) for record in (old, new)
        )
        for found, others, run in ((before, after, "old"), (after, before, "new")):
            if only := [value for value in found if value not in others]:
                lines.append(f"{what}s of the {run} run alone: {', '.join(only)}")
    return lines


def _problems(old: Record) -> list[str]:
    return [f"the old record: {problem}" for problem in old.problems]
