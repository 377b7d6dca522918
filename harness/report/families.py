"""Many decoders of one run on a row each: speedup over all tasks and by task, and what it costs."""

from __future__ import annotations

from harness.bench.costs import Costs, costs
from harness.bench.summary import Summary, evidence_of, summarise
from harness.record import Record
from harness.report.benchmark import figure
from harness.report.document import Cell, Struck, Table

COSTS = ("draft c", "verify v", "of ideal")


def table(record: Record) -> Table:
    """A decoder a row; columns are those of the report's tables of speedups and of costs."""
    decoders = record.header.decoders
    lossy = record.header.options.get("declared_lossy", ())
    found = summarise(record.generations, decoders, lossy, evidence_of(record.verdicts))
    by_group = {(of.decoder, of.task): of for of in found}
    spent = {(of.decoder, of.task): of for of in costs(record.generations, decoders)}
    tasks = list(dict.fromkeys(of.task for of in found))
    overall = "all" if "all" in tasks else tasks[0]  # one task alone is not summed up
    others = [task for task in tasks if task != overall]
    rows: list[list[Cell]] = [
        [
            decoder,
            figure(by_group[decoder, overall].speedup, by_group[decoder, overall].losslessness),
            *(_value(by_group.get((decoder, task))) for task in others),
            _length(by_group[decoder, overall]),
            *_costs(spent.get((decoder, overall))),
        ]
        for decoder in decoders
        if (decoder, overall) in by_group
    ]
    columns = ["decoder", "all tasks" if others else overall, *others, "tokens/call", *COSTS]
    return Table("Decoders side by side", columns, rows)


def _value(summary: Summary | None) -> Cell:
    """A speedup without its interval."""
    if summary is None or summary.speedup is None:
        return "-"
    text, objection = f"{summary.speedup.value:.2f}x", summary.losslessness.objection
    return Struck(text, objection) if objection else text


def _length(summary: Summary) -> str:
    tokens = summary.length_over_rounds
    return "-" if tokens is None else f"{tokens:.2f}"


def _costs(of: Costs | None) -> list[Cell]:
    if of is None:
        return ["-"] * len(COSTS)
    return [f"{of.draft:.3f}", f"{of.verify:.2f}", f"{of.share.value:.0%}"]
