"""Records of a sweep side by side: speedup and losslessness at every value of one setting."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench.acceptance import acceptances
from harness.bench.cost_model import CostModel, cost_models
from harness.bench.costs import costs
from harness.bench.summary import Summary, evidence_of, summarise
from harness.record import Record, VerdictRow
from harness.report.benchmark import figure, verdict
from harness.report.curves import Point, in_order, swept
from harness.report.document import Cell, Notes, Section, Table
from harness.report.predictions import measured_k
from harness.report.render import facts
from harness.verdict import Status

DRAFT_TOKENS = "draft_tokens"
VARIES = {  # which of the facts of a record an axis changes
    **dict.fromkeys(("draft_tokens", "temperature", "batch_size"), "decoding"),
    **dict.fromkeys(("max_new_tokens", "prompt_tokens"), "size"),
    **dict.fromkeys(("pair", "dtype"), "pair"),
}
MARK = "sweep"  # of a header: axis and value
ABOUT = (
    "the values took turns, row by row, so that what slows the machine down for a while slows all "
    "of them down; each row is a pair of arms, one right after the other"
)
PREDICTED = (
    "predicted: by the cost model of the largest K alone (acceptance by position, draft c, "
    "verify v), which has seen nothing of the other K"
)
PROMPT_TOKENS = (
    "prompts are cut at their beginning, or have other prompts of their task in front, to be of "
    "that length"
)


def sections(records: Sequence[Record]) -> list[Section]:
    """A section for each sweep that several of the records belong to."""
    by_axis: dict[str, list[Record]] = {}
    for record in records:
        if mark := record.header.options.get(MARK):
            by_axis.setdefault(str(mark["axis"]), []).append(record)
    return [_section(axis, own) for axis, own in by_axis.items() if len(own) > 1]


def _section(axis: str, records: Sequence[Record]) -> Section:
    by_value = {str(record.header.options[MARK]["value"]): record for record in records}
    values = {value: by_value[value] for value in in_order(list(by_value))}
    decoders = list(dict.fromkeys(name for r in records for name in r.header.decoders))
    summaries = {value: _summaries(record) for value, record in values.items()}
    models = _longest(records) if axis == DRAFT_TOKENS else []
    general = [(k, v) for k, v in facts(records[0].header) if k != VARIES.get(axis)]
    section = Section(f"Sweep over {axis}", general)
    section.tables.append(_table(axis, values, summaries, models, decoders))
    points = [
        Point(of.task, of.decoder, value, of.speedup, of.losslessness.objection)
        for value, found in summaries.items()
        for of in found
        if of.speedup
    ]
    if points:
        section.charts.append(swept(axis, list(values), points, decoders, models))
    notes = [ABOUT, *([PREDICTED] if models else [])]
    notes += [PROMPT_TOKENS] if axis == "prompt_tokens" else []
    section.notes.append(Notes("Sweep", notes))
    if lines := _not_measured(axis, values):
        section.notes.append(Notes("Not measured", lines))
    return section


def _summaries(record: Record) -> list[Summary]:
    header = record.header
    lossy = header.options.get("declared_lossy", ())
    evidence = evidence_of(record.verdicts)
    return summarise(record.generations, header.decoders, lossy, evidence)


def _longest(records: Sequence[Record]) -> list[CostModel]:
    """The models of the record with the largest K."""
    record = max(records, key=lambda record: measured_k(record.header))
    rows, decoders = record.generations, record.header.decoders
    return cost_models(rows, acceptances(rows, decoders), costs(rows, decoders))


def _table(
    axis: str,
    values: dict[str, Record],
    summaries: dict[str, list[Summary]],
    models: Sequence[CostModel],
    decoders: Sequence[str],
) -> Table:
    columns = ["task", "decoder", axis, "lossless", "speedup", "accepted", "tokens/call", "tok/s"]
    predicted = {(model.decoder, model.task): model for model in models}
    longest = max(values, key=lambda value: measured_k(values[value].header))
    found = {(s.task, s.decoder, v): s for v, own in summaries.items() for s in own}
    tasks = list(dict.fromkeys(task for task, _, _ in found))
    lacking = {(row.decoder, v) for v, r in values.items() for row in _unsupported(r)}
    rows: list[list[Cell]] = []
    for task in tasks:
        for decoder in decoders:
            for value in values:
                if summary := found.get((task, decoder, value)):
                    model = None if value == longest else predicted.get((decoder, task))
                    rows.append([task, decoder, value, *_cells(summary)])
                    rows[-1] += [f"{model.speedup(int(value)):.2f}x" if model else "-"]
                elif (decoder, value) in lacking:
                    rows.append([task, decoder, value, Status.UNSUPPORTED.value, *["-"] * 5])
    if models:
        columns.append("predicted")
    return Table(f"Speedup over {axis}", columns, [row[: len(columns)] for row in rows])


def _cells(of: Summary) -> list[Cell]:
    return [
        verdict(of.losslessness),
        figure(of.speedup, of.losslessness),
        "-" if of.acceptance is None else f"{of.acceptance:.0%}",
        "-" if of.length_over_rounds is None else f"{of.length_over_rounds:.2f}",
        f"{of.plain_rate:.1f} -> {of.rate:.1f}" if of.speedup else "-",
    ]


def _unsupported(record: Record) -> list[VerdictRow]:
    unsupported = (r for r in record.verdicts if r.verdict.status is Status.UNSUPPORTED)
    return [row for row in unsupported if row.item == "speedup"]


def _not_measured(axis: str, values: dict[str, Record]) -> list[str]:
    return [
        f"{row.decoder} at {axis} {value}: {row.verdict.message}"
        for value, record in values.items()
        for row in _unsupported(record)
    ]
