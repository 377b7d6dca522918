"""Acceptance by position and what it predicts, as tables: the cost model beside the measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from harness.bench.acceptance import Acceptance, acceptances
from harness.bench.cost_model import CostModel, cost_models
from harness.bench.costs import Costs
from harness.bench.estimate import Estimate
from harness.bench.summary import Summary
from harness.record import Header, Record
from harness.report.curves import predicted
from harness.report.document import Cell, Notes, Section, Struck, Table

MOST = 8  # positions that a table has room for

ACCEPTANCE = {
    "by position": "drafts accepted at a place of the block / rounds that drafted there and "
    "accepted all before it",
    "in a row": "rounds that accepted all drafts up to a place / all rounds; the sum of these and "
    "1 is the mean accepted length",
    "intervals": "95%, bootstrap over prompts; with one prompt, or where a rate is 0% or 100%, "
    "Clopper-Pearson over rounds, too narrow where the rounds of a prompt are alike",
}
THEORY = {
    "theory": "after the slash: mean of sum min(p, q) at the same places, the rate of token-wise "
    "rejection; of greedy outputs, how often both models say the same"
}
PREDICTIONS = {
    "predicted": "at the K that was measured, from totals: tokens and seconds of all rounds. "
    "Measured is a mean over prompts, which is all that they differ in",
    "calls alone": "if the time between the models' calls were nothing; between calls: what share "
    "of the speculative arm it takes. The gap between calls alone and predicted is that",
    "best K": "of the largest speedup that the model predicts, from acceptance by position, draft "
    "c and verify v; * beyond the measured positions, where the last rate is taken to go on. "
    "Blocks of other sizes cost what the line through one token (1 call) and the measured block "
    "says, and no less than the measured one where that cost less than one token",
    "break-even": "acceptance rate, the same at all positions, at which this K gives 1.0x",
    "ceiling": "if drafts were free, K without end, and a block cost no more than one token",
}


def add(
    record: Record, section: Section, summaries: Sequence[Summary], spent: Sequence[Costs]
) -> None:
    """Add what the rounds of a record say."""
    rows, header = record.generations, record.header
    if accepted := acceptances(rows, header.decoders):
        section.tables.append(_by_position(accepted))
        section.tables.append(_in_a_row(accepted))
        theory = any(p.theory is not None for of in accepted for p in of.positions)
        meanings = ACCEPTANCE | (THEORY if theory else {})
        words = [f"{k}: {v}" for k, v in meanings.items()]
        section.notes.append(Notes("Acceptance", words, detail=True))
    k = measured_k(header)
    if k and (models := cost_models(rows, accepted, spent)):
        by_group = {(of.decoder, of.task): of for of in summaries}
        between = {(of.decoder, of.task): of.parts["other"] for of in spent}
        section.tables.append(_predictions(models, k, by_group, between))
        section.tables.append(_by_k(models, by_group))
        words = [f"{k}: {v}" for k, v in PREDICTIONS.items()]
        section.notes.append(Notes("Predictions", words, detail=True))
        section.charts.append(predicted(models, k, by_group, header.decoders))


def measured_k(header: Header) -> int:
    """K of a run, 0 where the record does not say."""
    return int(header.options.get("draft_tokens") or 0)


def _by_position(found: Sequence[Acceptance]) -> Table:
    def cells(of: Acceptance) -> list[str]:
        return [
            _rate(p.conditional) + ("" if p.theory is None else f" / {p.theory:.0%}")
            for p in of.positions
        ]

    return _table("Acceptance by position", found, [cells(of) for of in found])


def _in_a_row(found: Sequence[Acceptance]) -> Table:
    cells = [[_rate(p.joint) for p in of.positions] for of in found]
    return _table("Drafts accepted in a row", found, cells)


def _table(title: str, found: Sequence[Acceptance], cells: Sequence[Sequence[str]]) -> Table:
    places = min(MOST, max(map(len, cells)))
    columns = ["task", "decoder", "rounds", *(f"{place}" for place in range(1, places + 1))]
    rows: list[list[Cell]] = [
        [of.task, of.decoder, str(of.rounds), *(*own, *["-"] * places)[:places]]
        for of, own in zip(found, cells, strict=True)
    ]
    return Table(title, columns, rows, detail=True)


def _rate(rate: Estimate) -> str:
    low, high = rate.low or 0.0, 1.0 if rate.high is None else rate.high
    return f"{rate.value:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


def _predictions(
    models: Sequence[CostModel],
    k: int,
    summaries: Mapping[tuple[str, str], Summary],
    between: Mapping[tuple[str, str], float],
) -> Table:
    columns = ["task", "decoder", "K", "measured", "predicted", "calls alone", "between calls"]
    columns += ["best K", "at best K", "break-even", "ceiling"]
    rows: list[list[Cell]] = []
    for model in models:
        of = summaries[model.decoder, model.task]
        best, even = model.best(), model.break_even(k)
        times = partial(_times, objection=of.losslessness.objection)
        rows.append(
            [
                model.task,
                model.decoder,
                str(k),
                times(of.speedup.value if of.speedup else math.nan),
                times(model.speedup(k)),
                times(model.ideal.speedup(k)),
                f"{between[model.decoder, model.task]:.0%}",
                f"{best}{_star(model, best)}",
                times(model.speedup(best)),
                "never" if even is None else f"{even:.0%}",
                times(model.ceiling),
            ]
        )
    return Table("Predicted and measured", columns, rows, detail=True)


def _by_k(models: Sequence[CostModel], summaries: Mapping[tuple[str, str], Summary]) -> Table:
    ks = range(1, MOST + 1)
    rows: list[list[Cell]] = []
    for model in models:
        objection = summaries[model.decoder, model.task].losslessness.objection
        speedups = [_times(model.speedup(k), objection, _star(model, k)) for k in ks]
        rows.append([model.task, model.decoder, *speedups])
    return Table("Predicted speedup by K", ["task", "decoder", *map(str, ks)], rows, detail=True)


def _star(model: CostModel, k: int) -> str:
    return "*" if k > model.places else ""


def _times(value: float, objection: str, mark: str = "") -> Cell:
    text = f"{value:.2f}x{mark}" if math.isfinite(value) else "none"
    return Struck(text, objection) if objection else text
