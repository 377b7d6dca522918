"""Beside the speedups: first token, target calls and memory, and what to doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.bench.columns import columns, groups
from harness.bench.estimate import Estimate
from harness.bench.honesty import doubts
from harness.bench.resources import Resources, resources
from harness.bench.stability import unsteady
from harness.bench.summary import evidence_of, judge
from harness.record import Record
from harness.report.conformance import listed
from harness.report.document import Cell, Notes, Section, Struck, Table

DOUBTS = "What to doubt"
MEANINGS = {
    "first token": "median time to the first token of a stream, plain -> speculative, by the "
    "harness's clock in a short call of its own, after the prompt was decoded by both arms: where "
    "prompts are cached, with a warm cache",
    "first token earlier": "the ratio of those times, plain / speculative; geometric mean over "
    "prompts, with its 95% bootstrap interval",
    "calls/token": "target calls a token, plain -> speculative, as the decoder counts them; the "
    "passes over the prompt left out",
    "peak memory": "largest allocation of this process on the device, plain -> speculative; the "
    "weights of target and draft are there in both arms",
}
UNITS = ("B", "kB", "MB", "GB", "TB")


def add(record: Record, section: Section) -> None:
    """Add what was measured beside the speedups."""
    rows, header = record.generations, record.header
    if found := resources(rows, header.decoders):
        all_of = columns(rows)
        lossy, evidence = header.options.get("declared_lossy", ()), evidence_of(record.verdicts)
        objections = {
            (decoder, task): judge(group, decoder in lossy, evidence.get(decoder)).objection
            for decoder, task, group in groups(all_of, all_of.table, header.decoders)
        }
        section.tables.append(_table(found, objections))
        section.notes.append(Notes("First token and calls", _meanings(found), detail=True))
    if memory := header.options.get("memory"):
        section.notes.append(Notes("Memory", _memory(memory, header.pair.device), detail=True))


def add_doubts(record: Record, section: Section) -> None:
    """Add what speaks against the figures, if anything does."""
    rows, header = record.generations, record.header
    k, eos = header.options.get("draft_tokens"), bool(header.options.get("eos"))
    lines = [*unsteady(rows, header.decoders), *doubts(rows, header.decoders, k, eos)]
    if lines:
        section.notes.append(Notes(DOUBTS, listed(lines)))


def _table(found: Sequence[Resources], objections: Mapping[tuple[str, str], str]) -> Table:
    columns = ["task", "decoder", "first token", "first token earlier", "calls/token"]
    rows: list[list[Cell]] = [
        [
            of.task,
            of.decoder,
            _arms(_milliseconds(of.plain_first), _milliseconds(of.first)),
            _interval(of.earlier, objections[of.decoder, of.task]),
            _arms(_number(of.plain_calls), _number(of.calls)),
        ]
        for of in found
    ]
    if any(of.peak for of in found):
        columns.append("peak memory")
        for row, of in zip(rows, found, strict=True):
            row.append(_arms(_size(of.plain_peak), _size(of.peak)))
    return Table("First token, target calls and memory", columns, rows, detail=True)


def _meanings(found: Sequence[Resources]) -> list[str]:
    shown = dict(MEANINGS)
    if not any(of.peak for of in found):
        del shown["peak memory"]
    return [f"{name}: {meaning}" for name, meaning in shown.items()]


def _memory(told: dict[str, int], device: str) -> list[str]:
    """What the draft adds; of both arms only a GPU tells the peak."""
    words = [
        f"{role}: weights {_size(told[f'{role}_weights'])}"
        + (f", cache {_size(told[cache])} a token" if (cache := f"{role}_cache") in told else "")
        + (" (weights that it shares with the target not counted)" if role == "draft" else "")
        for role in ("target", "draft")
        if f"{role}_weights" in told
    ]
    if device.startswith("cpu"):
        words.append(
            "the peak of either arm is not measured on a CPU: memory that one arm gave back stays "
            "with the process, and the other finds it there; a decoder with the pair's draft needs "
            "what is computed here for the draft on top of plain decoding"
        )
    return words


def _arms(plain: str, speculative: str) -> str:
    return "-" if plain == speculative == "-" else f"{plain} -> {speculative}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.3g} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _interval(found: Estimate | None, objection: str) -> Cell:
    if found is None:
        return "-"
    ends = f" [{found.low:.2f}, {found.high:.2f}]" if found.low is not None else ""
    text = f"{found.value:.2f}x{ends}"
    return Struck(text, objection) if objection else text


def _size(size: float | None) -> str:
    """Bytes in decimal units, as data sheets give them."""
    if size is None:
        return "-"
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {UNITS[-1]}"
