"""What is said of speculative decoding, judged from records: a section of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.record import Record
from harness.report import claim_rules as rules
from harness.report import claim_suites as suites
from harness.report.claim_evidence import Evidence, Judgement, Outcome, evidence
from harness.report.document import Cell, Notes, Section, Table

TITLE = "What is said of speculative decoding"
DECIDED = (Outcome.SUPPORTED, Outcome.CONTRADICTED)
HOW = (
    "one interval wholly on the other side contradicts a claim, all of them on its side support "
    "it; those of one claim hold together with 95%, so that they are wider than in the tables",
    "undecided: measured, and the intervals lie on both sides, or are over too few prompts",
    "only decoders count whose outputs are the plain ones; sampled ones, if their distribution "
    "passed a suite among these records",
)


@dataclass(frozen=True)
class Claim:
    """One claim of the field.

    Attributes
    ----------
    id : str
    words : str
        As it is said.
    decided_by : str
        What a record has to hold.
    rule : callable
        From evidence to a judgement.
    """

    id: str
    words: str
    decided_by: str
    rule: rules.Rule


CLAIMS = (
    Claim(
        "greedy",
        "Greedy output is unchanged",
        "greedy outputs of a benchmark, or the greedy suite",
        suites.greedy_unchanged,
    ),
    Claim(
        "sampled",
        "The distribution of sampled output is unchanged, whatever the draft",
        "the distribution suite, with an ordinary and with a bad or hostile draft; evidence of "
        "sampled runs counts as well",
        suites.sampled_unchanged,
    ),
    Claim(
        "chat",
        "Chat gains 1.5 to 3 times",
        "speedups of the task chat",
        rules.gains(1.5, 3.0, "chat"),
    ),
    Claim(
        "code-math",
        "Code and math gain only 1.2 to 1.5 times",
        "speedups of the tasks code and math",
        rules.gains(1.2, 1.5, "code", "math"),
    ),
    Claim(
        "code-creative",
        "Code is easier to draft than creative text (others say: harder)",
        "acceptance of a decoder that tells its rounds, on the tasks code and creative",
        rules.code_is_easier,
    ),
    Claim(
        "creative",
        "Creative text, or a high temperature, gains nothing or loses",
        f"speedups of the task creative, or of a run at temperature {rules.HOT:g} or above whose "
        f"decoder passed the distribution suite; below {rules.NO_GAIN:g} is called nothing",
        rules.creative_gains_nothing,
    ),
    Claim(
        "mismatch",
        "A mismatched draft makes it slower",
        "speedups with a draft chosen to be mismatched (a pair named -bad or -hostile), or with "
        f"less than {rules.BARELY:.0%} accepted",
        rules.mismatch_is_slower,
    ),
    Claim(
        "acceptance",
        "Useful acceptance is 60 to 80%",
        "accepted / drafted: a decoder that gains with less or loses with more; or one that gains "
        "with more beside one that loses with less",
        rules.useful_acceptance,
    ),
    Claim(
        "stronger",
        "A stronger draft is not always the faster one",
        "two drafts of one engine in one run, of which one gives more tokens per target call",
        rules.stronger_is_not_always_faster,
    ),
    Claim(
        "batch",
        "Gains shrink as the batch grows, and can turn into losses",
        "runs that differ in the option batch_size of their headers",
        rules.shrinks_with_batch,
    ),
    Claim(
        "short",
        "Short outputs gain little",
        f"a run with outputs of up to {rules.SHORT} tokens and longer ones: the speedup of the "
        "short over that of the others",
        rules.short_gains_less,
    ),
    Claim(
        "memory",
        "The draft costs little memory",
        "bytes of weights and cache of both models in the option memory of a header; below "
        f"{rules.LITTLE:.0%} of the target's is called little",
        rules.memory,
    ),
    Claim(
        "int8",
        "It goes together with a quantised target",
        "a run with --dtype int8: lossless, and faster than plain decoding of the same target",
        rules.composes_with_int8,
    ),
    Claim(
        "kv-cache",
        "It goes together with the KV cache",
        "the cache suite",
        suites.cache_unchanged,
    ),
)


@dataclass(frozen=True)
class Judged:
    """A claim and what became of it, as data."""

    id: str
    claim: str
    outcome: str
    figures: list[str]
    decided_by: str


def judge(found: Evidence) -> list[tuple[Claim, Judgement]]:
    """Every claim, in the order of ``CLAIMS``."""
    return [(claim, claim.rule(found)) for claim in CLAIMS]


def add(record: Record, section: Section) -> None:
    """Add what one record says of the claims, if it says anything of one."""
    judged = judge(evidence([record]))
    if told := [(claim, found) for claim, found in judged if found.outcome in DECIDED]:
        told = [(c, found) for c, found in judged if found.outcome is not Outcome.NOT_MEASURED]
        _fill(section, told, detail=True)
        more = len(judged) - len(told)
        if more:
            line = f"not measured here: {more} more, which --claims lists"
            section.notes[-1].lines.append(line)


def section(records: Sequence[Record]) -> Section:
    """What all records together say of every claim."""
    judged = judge(evidence(records))
    decoders = dict.fromkeys(name for record in records for name in record.header.decoders)
    found = Section(TITLE, [("records", str(len(records))), ("decoders", ", ".join(decoders))])
    _fill(found, judged)
    missing = [
        f"{claim.words}: takes {claim.decided_by}"
        for claim, of in judged
        if of.outcome is Outcome.NOT_MEASURED
    ]
    if missing:
        found.notes.append(Notes("Not measured here", missing))
    problems = [
        f"{record.header.command}: {problem}" for record in records for problem in record.problems
    ]
    if problems:
        found.notes.append(Notes("Problems of the records", problems))
    return found


def decided(found: Section) -> bool:
    """Whether some claim of a section came out one way or the other."""
    words = [outcome.value for outcome in DECIDED]
    return any(judged.outcome in words for judged in found.figures["claims"])


def _fill(found: Section, judged: Sequence[tuple[Claim, Judgement]], detail: bool = False) -> None:
    rows: list[list[Cell]] = [[claim.words, of.outcome.value] for claim, of in judged]
    found.tables.append(Table("Claims, and what they come to here", ["claim", "here"], rows))
    lines = [
        f"{claim.words} ({of.outcome.value}): {'; '.join(of.figures)}"
        for claim, of in judged
        if of.figures
    ]
    found.notes.append(Notes("What the claims were judged by", [*lines, *HOW], detail=detail))
    found.figures["claims"] = [
        Judged(claim.id, claim.words, of.outcome.value, of.figures, claim.decided_by)
        for claim, of in judged
    ]
