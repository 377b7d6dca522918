"""Whether to speculate, and with which K: by task, from what was measured and the cost model.

Only of decoders that are lossless on what was timed. What was measured comes first: the model
speaks of another K only where it expects noticeably more, scaled so that it is right at the K that
was measured. Its own error is unknown, which is why such a K is to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.bench.acceptance import acceptances
from harness.bench.cost_model import CostModel, cost_models, joined
from harness.bench.costs import costs
from harness.bench.estimate import Estimate
from harness.bench.summary import Summary, evidence_of, summarise
from harness.record import Header, Record
from harness.report.document import Notes, Section
from harness.report.predictions import measured_k
from harness.report.render import facts
from harness.verdict import Status

NOTICEABLE = 1.02  # a prediction of less than that over the measurement is not worth another run
ASIDE = {"draft_tokens", "sweep", "load_average"}  # options in which records go together
STOP = "do not speculate"
NOTHING = "no advice: nothing was timed"
NOT_SHOWN = "no advice: losslessness was not shown"


def sections(records: Sequence[Record]) -> list[Section]:
    """Advice for each setting; records that differ in K alone are one."""
    settings: dict[bytes, list[Record]] = {}
    for record in records:
        settings.setdefault(_setting(record.header), []).append(record)
    return [_section(own) for own in settings.values()]


def _setting(header: Header) -> bytes:
    told = {name: value for name, value in header.options.items() if name not in ASIDE}
    return msgspec.json.encode((header.pair, told), order="deterministic")


def _section(records: Sequence[Record]) -> Section:
    header = records[0].header
    ks = ", ".join(str(k) for k in sorted({measured_k(record.header) for record in records}))
    told = dict(facts(header))
    decoding = [part for part in told.get("decoding", "").split(", ") if not part.startswith("K =")]
    about = [
        ("pair", told["pair"]),
        ("decoding", ", ".join(decoding)),
        ("measured at", f"K = {ks}"),
    ]
    section = Section(f"Advice: {header.pair.name}", about)
    measured: dict[tuple[str, str], dict[int, Summary]] = {}
    models: dict[tuple[str, str], list[CostModel]] = {}
    for record in records:
        rows, decoders = record.generations, record.header.decoders
        k, lossy = measured_k(record.header), record.header.options.get("declared_lossy", ())
        for of in summarise(rows, decoders, lossy, evidence_of(record.verdicts)):
            measured.setdefault((of.decoder, of.task), {})[k] = of
        for model in cost_models(rows, acceptances(rows, decoders), costs(rows, decoders)):
            models.setdefault((model.decoder, model.task), []).append(model)
    for decoder in dict.fromkeys(name for name, _ in measured):
        lines = []
        for (name, task), by_k in measured.items():
            if name == decoder:
                known = models.get((name, task))
                lines.append(f"{task}: {advice(by_k, joined(known) if known else None)}")
        section.notes.append(Notes(decoder, lines))
    if not measured:
        section.notes.append(Notes("Result", [NOTHING]))
    return section


def advice(measured: Mapping[int, Summary], model: CostModel | None) -> str:
    """What to do on one task.

    Parameters
    ----------
    measured : mapping of int to Summary
        By K.
    model : CostModel or None
        None for a decoder that does not tell its rounds and costs.
    """
    lossless = {k: s for k, s in measured.items() if s.losslessness.status is Status.PASS}
    if not lossless:
        objections = [s.losslessness.objection for s in measured.values()]
        return f"no advice: {objections[0]}" if any(objections) else NOT_SHOWN
    timed = {k: s.speedup for k, s in lossless.items() if s.speedup}
    if not timed:
        return NOTHING
    k = max(timed, key=lambda k: timed[k].value)
    found = timed[k]
    best, reached = _best(model, k, found)
    elsewhere = best not in measured and reached > NOTICEABLE * max(1.0, found.value)
    where = f"K={best} predicted, {reached:.2f}x{_beyond(model, best)}: measure it"
    if _high(found) < 1 or reached < 1:
        return f"{STOP}, {_words(found)} at K={k}" + (f"; {where}" if elsewhere else "")
    if elsewhere:
        return f"{where} (measured: K={k}, {_words(found)})"
    unclear = found.value if found.low is None else found.low
    return f"K={k}, {_words(found)}" + (": no gain shown" if unclear <= 1 else "")


def _best(model: CostModel | None, k: int, found: Estimate) -> tuple[int, float]:
    """The K that the model prefers, and its speedup; without a model what was measured."""
    if model is None:
        return k, max(1.0, found.value)
    best = model.best()
    return best, found.value * model.speedup(best) / model.speedup(k)


def _beyond(model: CostModel | None, k: int) -> str:
    return " (beyond the measured positions)" if model and k > model.places else ""


def _high(found: Estimate) -> float:
    return found.value if found.high is None else found.high


def _words(found: Estimate) -> str:
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}x{interval}"
