"""The benchmark of a record: two tables, and what has to be said about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.bench.comparison import Comparison, compare
from harness.bench.costs import Costs, costs
from harness.bench.estimate import Estimate
from harness.bench.row_figures import verdict_of
from harness.bench.summary import (
    EVIDENCE,
    REPEATING,
    Losslessness,
    Summary,
    evidence_of,
    summarise,
)
from harness.bench.tasks import ALL_TASKS
from harness.record import GenerationRow, Record, VerdictRow
from harness.report import predictions, wealth
from harness.report.again import again
from harness.report.charts import charts
from harness.report.conformance import listed
from harness.report.differences import differences
from harness.report.document import Cell, Notes, Section, Struck, Table
from harness.verdict import Status

FEW_PROMPTS = 8  # below this, a bootstrap interval is known to be too narrow

FIGURES = {
    "lossless": "speculative outputs that equal the plain ones in all ids and in the finish "
    "reason; of sampled ones the verdict of their evidence",
    "speedup": "seconds per token, plain / speculative, of each prompt decoded by both arms one "
    "right after the other; geometric mean over prompts, with its 95% bootstrap interval (BCa)",
    "slower": "prompts that speculation slowed down",
    "accepted": "acceptance rate: accepted / drafted tokens",
    "tokens/call": "mean accepted length: tokens per target call, recovered or bonus token "
    "included, over all rounds; after the slash, where it differs, the mean over requests of each "
    "one's own",
    "tok/s": "all tokens / all seconds, plain -> speculative, prompt processing included",
    "repeats": "share of 4-grams of the plain outputs that occurred before in the same output; "
    f"above {REPEATING:.0%} (marked !) the text is degenerate, and easier to draft than real text",
}
COSTS = {
    "draft c, verify v": "a drafted token, and the target's pass over a block, in passes of the "
    "target over one token",
    "drafted": "tokens a round",
    "ideal": "speedup if the models' calls alone took time: tokens/call / (v + c x drafted), the "
    "prompt's pass added on both sides",
    "of ideal": "measured speedup / ideal; what is missing is the time between the calls",
    "draft, verify, other": "of the speculative arm's time; the rest read the prompt",
}
NOT_TOLD = "accepted, tokens/call: a dash where the decoder does not tell its rounds"
AGAIN = "To see these failures again"
DETAILS = ("Near ties", "Different lengths")  # findings that are nothing to worry about
NEAR_TIES = (
    "no faults: the token's logit is as high as the best but for four times the noise, which is "
    "how far the gap of the two best moves when a text is scored whole or in blocks"
)
COARSE = "{dtype} makes near ties common and excuses a lot: --dtype float32 judges more strictly"
SAMPLED = (
    "both arms may give different texts and yet follow the same law: every token that was timed is "
    "a bet against the target's law, with plain decoding as control; the verdict is on all tasks "
    "together"
)
UNJUDGED = "nothing says whether it follows the target's law: the run ended before, or was older"


def add(record: Record, section: Section) -> None:
    """Add what was timed to a section."""
    rows, header = record.generations, record.header
    if not rows:
        return
    lossy = header.options.get("declared_lossy", ())
    evidence = evidence_of(record.verdicts)
    summaries = summarise(rows, header.decoders, lossy, evidence)
    comparisons = compare(rows, header.decoders, lossy, evidence)
    section.tables.append(_speedups(summaries))
    section.figures.update(speedups=[*summaries], against_plain=[*comparisons])
    if len(comparisons) > 1:
        section.tables.append(_comparison(comparisons))
    if found := costs(rows, header.decoders):
        verdicts = {(of.decoder, of.task): of.losslessness for of in summaries}
        section.tables.append(_costs(found, verdicts))
        section.figures["costs"] = [*found]
        section.notes.append(Notes("Costs", [f"{k}: {v}" for k, v in COSTS.items()], detail=True))
    for title, lines in _findings(record, summaries).items():
        if lines:
            section.notes.append(
                Notes(title, listed(lines), title == AGAIN, detail=title in DETAILS)
            )
    section.notes.append(Notes("Figures", _definitions(summaries, comparisons), detail=True))
    section.charts.extend(charts(rows, header.decoders, summaries, found))
    section.charts.extend(wealth.charts(record.verdicts, header.decoders))
    predictions.add(record, section, summaries, found)
    section.differences.extend(differences(rows, header.decoders, lossy))


def _speedups(summaries: Sequence[Summary]) -> Table:
    columns = ["task", "decoder", "lossless", "speedup", "slower", "accepted", "tokens/call"]
    columns += ["tok/s", "repeats"]
    return Table(
        "Speedup over the decoder's own plain decoding", columns, [_row(s) for s in summaries]
    )


def _row(summary: Summary) -> list[Cell]:
    timed = summary.speedup is not None
    return [
        summary.task,
        summary.decoder,
        verdict(summary.losslessness),
        figure(summary.speedup, summary.losslessness),
        f"{summary.slower}/{summary.prompts}",
        "-" if summary.acceptance is None else f"{summary.acceptance:.0%}",
        _length(summary),
        f"{summary.plain_rate:.1f} -> {summary.rate:.1f}" if timed else "-",
        _repetition(summary) if timed else "-",
    ]


def _costs(found: Sequence[Costs], verdicts: Mapping[tuple[str, str], Losslessness]) -> Table:
    columns = ["task", "decoder", "draft c", "verify v", "drafted", "tokens/call", "ideal"]
    columns += ["of ideal", "draft", "verify", "other"]
    rows: list[list[Cell]] = [
        [
            of.task,
            of.decoder,
            f"{of.draft:.3f}",
            f"{of.verify:.2f}",
            f"{of.drafted:.2f}",
            f"{of.length:.2f}",
            figure(of.ideal, verdicts[of.decoder, of.task]),
            f"{of.share.value:.0%}",
            *(f"{of.parts[part]:.0%}" for part in ("draft", "verify", "other")),
        ]
        for of in found
    ]
    return Table("Where the time goes", columns, rows, detail=True)


def verdict(found: Losslessness) -> str:
    """A verdict and how many outputs it rests on, as a cell."""
    if found.status is Status.INCONCLUSIVE:
        return "INCONCLUSIVE"
    word = "LOSSY" if found.status is Status.UNSUPPORTED else found.status.value
    if found.sampled and not found.errors:
        return f"{word} sampled"
    ties = {0: "", 1: ", 1 near tie"}.get(found.near_ties, f", {found.near_ties} near ties")
    return f"{word} {found.identical}/{found.total}{ties}"


def figure(estimate: Estimate | None, losslessness: Losslessness | None = None) -> Cell:
    """A speedup and its interval as a cell; struck where it is no result."""
    if estimate is None:
        return "-"
    text = f"{estimate.value:.2f}x"
    if estimate.low is not None and estimate.high is not None:
        text += f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    objection = losslessness.objection if losslessness else ""
    return Struck(text, objection) if objection else text


def _length(summary: Summary) -> str:
    if summary.length_over_rounds is None or summary.length_over_requests is None:
        return "-"
    averages = (f"{summary.length_over_rounds:.2f}", f"{summary.length_over_requests:.2f}")
    return " / ".join(dict.fromkeys(averages))


def _repetition(summary: Summary) -> str:
    return f"{summary.repetition:.0%}{' !' if summary.repetition > REPEATING else ''}"


def _comparison(comparisons: Sequence[Comparison]) -> Table:
    baseline = comparisons[0].baseline
    rows: list[list[Cell]] = [
        [
            found.decoder,
            "1 (baseline)" if found.decoder == baseline else figure(found.plain),
            figure(found.speculative, found.losslessness),
            f"{found.same_text}/{found.total}",
        ]
        for found in comparisons
    ]
    title = f"Against plain decoding of {baseline}, on the same prompts"
    return Table(title, ["decoder", "its plain arm", "its speculative arm", "same text"], rows)


def _findings(record: Record, summaries: Sequence[Summary]) -> dict[str, list[str]]:
    """What has to be said beside the tables, by title."""
    rows = record.generations
    findings = {
        "Not lossless": [
            f"{_where(row)}: {row.fault or 'the outputs differ'}"
            for row in rows
            if verdict_of(row) is Status.FAIL
        ],
        AGAIN: [],
        "Errors": _grouped([row for row in rows if row.error]),
        "Near ties": [f"{_where(row)}: {row.near_tie}" for row in rows if row.near_tie],
        "Sampled output": [],
        "Different lengths": [
            f"{s.decoder}, {s.task}: outputs of the two arms differ in length, so the speedup is "
            "one of seconds per token, not of seconds"
            for s in summaries
            if s.per_token and s.task != ALL_TASKS
        ],
    }
    failed = [s for s in summaries if s.losslessness.failed and s.task != ALL_TASKS]
    for decoder in dict.fromkeys(summary.decoder for summary in failed):
        tasks = [summary.task for summary in failed if summary.decoder == decoder]
        findings[AGAIN].append(again(record.header, decoder, tasks))
    if findings["Near ties"]:
        coarse = record.header.pair.dtype != "float32"
        told = [NEAR_TIES, COARSE.format(dtype=record.header.pair.dtype)] if coarse else [NEAR_TIES]
        findings["Near ties"] = told + findings["Near ties"]
    if any(row.identical is None and not row.error for row in rows):
        judged = [row for row in record.verdicts if row.item.startswith(EVIDENCE)]
        findings["Sampled output"] = [SAMPLED, *map(_sampled, judged)]
        silent = {row.decoder for row in rows} - {row.decoder for row in judged}
        findings["Sampled output"] += [f"{decoder}: {UNJUDGED}" for decoder in sorted(silent)]
    return findings


def _sampled(row: VerdictRow) -> str:
    found = row.verdict
    likely = f"; likely fault: {found.likely_fault}" if found.likely_fault else ""
    ruled_out = f"; ruled out: {found.ruled_out}" if found.ruled_out else ""
    return f"{row.decoder}, {found.status.value}: {found.message}{likely}{ruled_out}"


def _grouped(rows: Sequence[GenerationRow]) -> list[str]:
    """One line for all outputs of a decoder that failed in the same way."""
    prompts: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        prompts.setdefault((row.decoder, row.error), []).append(row.prompt_id)
    return [
        f"{decoder}, {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {error}"
        for (decoder, error), names in prompts.items()
    ]


def _where(row: GenerationRow) -> str:
    repeat = f", repeat {row.repeat + 1}" if row.repeat else ""
    return f"{row.decoder}, {row.prompt_id}{repeat}"


def _definitions(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> list[str]:
    lines = [f"{name}: {meaning}" for name, meaning in FIGURES.items()]
    timed = [summary for summary in summaries if summary.prompts]
    if any(summary.acceptance is None for summary in timed):
        lines.append(NOT_TOLD)
    fewest = min((summary.prompts for summary in timed), default=FEW_PROMPTS)
    if fewest < FEW_PROMPTS:
        lines.append(
            f"intervals over few prompts (here {fewest} in some rows) are too narrow: a longer "
            "--profile gives better ones"
        )
    if len(comparisons) > 1:
        lines.append(
            "its plain arm, its speculative arm: how many times faster per token than plain "
            f"decoding of {comparisons[0].baseline}, geometric mean over prompts; two "
            "transformers-* decoders share one plain arm, so the distance from 1 of the second is "
            "the noise of this table"
        )
        lines.append(
            "same text: plain outputs whose ids are those of the baseline's plain decoding"
        )
    return lines
