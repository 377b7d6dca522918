"""Figures of a benchmark run: pure functions of its rows.

A ratio is always of seconds per token, plain over speculative, of one prompt decoded by both arms
one right after the other. Where the outputs are identical, that is the ratio of seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import geometric_mean as geometric

from harness.bench.estimate import Estimate, geometric_mean
from harness.record import GenerationRow, VerdictRow
from harness.verdict import Status

ALL_TASKS = "all"
EVIDENCE = "bench.evidence"  # the check that judges sampled outputs: ``harness.bench.gate``
REPEATING = 0.2  # share of repeated 4-grams from which on text is called degenerate


@dataclass(frozen=True)
class Losslessness:
    """Whether the outputs that were timed are the plain ones.

    Attributes
    ----------
    status : Status
        PASS only if every output is identical, or differs first at a near tie. UNSUPPORTED for a
        decoder that declares itself lossy: it claims nothing that could hold. Of sampled outputs
        what the evidence of all of the decoder's tokens says.
    identical, near_ties, faults, errors, total : int
        Outputs, one a row.
    """

    status: Status
    identical: int
    near_ties: int
    faults: int
    errors: int
    total: int
    sampled: bool = False

    @property
    def failed(self) -> bool:
        """Whether some output is not the target's, declared or not."""
        return bool(self.faults) or self.status is Status.FAIL

    @property
    def disqualifies(self) -> bool:
        """Whether a speedup would be one of a decoder that does not do its job."""
        return self.status in (Status.FAIL, Status.ERROR, Status.UNSUPPORTED)

    @property
    def objection(self) -> str:
        """Why a speedup is no result, in words; empty where it is one."""
        if not self.disqualifies:
            return ""
        return "lossy by design" if self.status is Status.UNSUPPORTED else "not lossless"


@dataclass(frozen=True)
class Summary:
    """One decoder on one task.

    Attributes
    ----------
    speedup : Estimate or None
        None where nothing could be timed.
    slower, prompts : int
        Prompts that speculation slowed down, of those timed.
    per_token : bool
        Whether some outputs differ in length, so that seconds alone do not compare.
    acceptance : float or None
        Accepted / drafted tokens; None where the decoder does not tell its rounds.
    length_over_rounds, length_over_requests : float or None
        Mean accepted length (tokens per target call, recovered or bonus token included), over all
        rounds, and as a mean over requests of each one's own.
    plain_rate, rate : float
        Tokens per second, all tokens over all seconds.
    repetition : float
        Mean share of repeated 4-grams in the plain outputs.
    """

    decoder: str
    task: str
    losslessness: Losslessness
    speedup: Estimate | None
    slower: int
    prompts: int
    per_token: bool
    acceptance: float | None
    length_over_rounds: float | None
    length_over_requests: float | None
    plain_rate: float
    rate: float
    repetition: float


def summarise(
    rows: Sequence[GenerationRow],
    decoders: Sequence[str],
    declared_lossy: Collection[str] = (),
    evidence: Mapping[str, Status] | None = None,
) -> list[Summary]:
    """Every task and decoder, tasks in the order of the rows; then each decoder over all tasks."""
    said = evidence or {}
    repeats = _repetitions(rows)
    return [
        _summary(
            decoder,
            task,
            group,
            judge(group, decoder in declared_lossy, said.get(decoder)),
            repeats,
        )
        for decoder, task, group in groups(rows, decoders)
    ]


def _repetitions(rows: Sequence[GenerationRow]) -> dict[int, float]:
    """By row: every row is in two groups, and decoders share their plain texts."""
    known: dict[tuple[int, ...], float] = {}
    found = {}
    for row in rows:
        text = tuple(row.plain_tokens)
        if text not in known:
            known[text] = repetition(text)
        found[id(row)] = known[text]
    return found


def groups(
    rows: Sequence[GenerationRow], decoders: Sequence[str]
) -> Iterator[tuple[str, str, list[GenerationRow]]]:
    """Decoder, task and their rows, task by task; then each decoder's rows of all tasks."""
    found: dict[tuple[str, str], list[GenerationRow]] = {}
    for row in rows:
        for task in (row.task, ALL_TASKS):
            found.setdefault((row.decoder, task), []).append(row)
    tasks = list(dict.fromkeys(row.task for row in rows))
    for task in [*tasks, ALL_TASKS] if len(tasks) > 1 else tasks:
        for decoder in decoders:
            if (decoder, task) in found:
                yield decoder, task, found[decoder, task]


def _summary(
    decoder: str,
    task: str,
    rows: Sequence[GenerationRow],
    losslessness: Losslessness,
    repeats: Mapping[int, float],
) -> Summary:
    timed = [row for row in rows if timeable(row)]
    ratios = prompt_ratios(timed, plain_cost, cost)
    told = [row for row in timed if row.drafted]
    of_rows = [(len(row.drafted or ()), sum(row.accepted or ())) for row in told]
    lengths = [1 + accepted / rounds for rounds, accepted in of_rows]
    rounds = sum(rounds for rounds, _ in of_rows)
    accepted = sum(accepted for _, accepted in of_rows)
    drafted = sum(sum(row.drafted or ()) for row in told)
    return Summary(
        decoder=decoder,
        task=task,
        losslessness=losslessness,
        speedup=geometric_mean(ratios) if ratios else None,
        slower=sum(ratio < 1 for ratio in ratios),
        prompts=len(ratios),
        per_token=any(len(row.tokens) != len(row.plain_tokens) for row in timed),
        acceptance=accepted / drafted if drafted else None,
        length_over_rounds=(accepted + rounds) / rounds if rounds else None,
        length_over_requests=fmean(lengths) if lengths else None,
        plain_rate=_rate(
            sum(len(r.plain_tokens) for r in timed), sum(r.plain_seconds for r in timed)
        ),
        rate=_rate(sum(len(r.tokens) for r in timed), sum(r.seconds for r in timed)),
        repetition=fmean([repeats[id(row)] for row in timed]) if timed else 0.0,
    )


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else math.nan


def timeable(row: GenerationRow) -> bool:
    """Whether both arms of a row gave output, and in good form."""
    return bool(
        not row.error
        and row.tokens
        and row.plain_tokens
        and min(row.seconds, row.plain_seconds) > 0
    )


def plain_cost(row: GenerationRow) -> float:
    """Seconds per token of the plain arm."""
    return row.plain_seconds / len(row.plain_tokens)


def cost(row: GenerationRow) -> float:
    """Seconds per token of the speculative arm."""
    return row.seconds / len(row.tokens)


def prompt_ratios(
    rows: Sequence[GenerationRow],
    numerator: Callable[[GenerationRow], float],
    denominator: Callable[[GenerationRow], float],
) -> list[float]:
    """One ratio a prompt, or a batch of them: the geometric mean over its repeats."""
    return list(ratios_by_prompt(rows, numerator, denominator).values())


def unit(row: GenerationRow) -> tuple[str, str]:
    """What counts once in a mean, however often it was repeated: a prompt, or a batch of them."""
    return row.task, row.batch or row.prompt_id


def ratios_by_prompt(
    rows: Sequence[GenerationRow],
    numerator: Callable[[GenerationRow], float],
    denominator: Callable[[GenerationRow], float],
) -> dict[tuple[str, str], float]:
    """The same by task and prompt."""
    ratios = [(unit(row), numerator(row) / denominator(row)) for row in rows]
    once = dict(ratios)
    if len(once) == len(ratios):
        return once
    repeats: dict[tuple[str, str], list[float]] = {}
    for prompt, ratio in ratios:
        repeats.setdefault(prompt, []).append(ratio)
    return {prompt: geometric(values) for prompt, values in repeats.items()}


def evidence_of(verdicts: Sequence[VerdictRow]) -> dict[str, Status]:
    """By decoder, what its sampled outputs were found to be."""
    return {r.decoder: r.verdict.status for r in verdicts if r.item.startswith(EVIDENCE)}


def judge(
    rows: Sequence[GenerationRow], declared_lossy: bool = False, evidence: Status | None = None
) -> Losslessness:
    """Judge the very outputs that were timed.

    Parameters
    ----------
    evidence : Status, optional
        Of sampled outputs, which no comparison of ids can judge; without it they are INCONCLUSIVE.
    """
    kinds = [verdict_of(row) for row in rows]
    counts = Counter(kinds)
    near_ties = sum(
        bool(row.near_tie) for row, kind in zip(rows, kinds, strict=True) if kind is Status.PASS
    )
    order = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.PASS)
    status = next((kind for kind in order if counts[kind]), Status.INCONCLUSIVE)
    sampled = any(row.identical is None and not row.error for row in rows)
    if sampled and evidence and status is Status.INCONCLUSIVE:
        status = evidence
    return Losslessness(
        status=Status.UNSUPPORTED if declared_lossy and status is not Status.ERROR else status,
        identical=counts[Status.PASS] - near_ties,
        near_ties=near_ties,
        faults=counts[Status.FAIL],
        errors=counts[Status.ERROR],
        total=len(rows),
        sampled=sampled,
    )


def verdict_of(row: GenerationRow) -> Status:
    """Judge one row by its ids; a near tie excuses a difference, and never an empty output."""
    if row.error or not row.plain_tokens:
        return Status.ERROR
    if row.identical is None:
        return Status.INCONCLUSIVE
    same = row.identical and row.tokens == row.plain_tokens
    excused = bool(row.near_tie and row.tokens and not row.fault)
    return Status.PASS if same or excused else Status.FAIL


def repetition(tokens: Sequence[int], n: int = 4) -> float:
    """Share of the n-grams that occurred before in the same text."""
    total = len(tokens) - n + 1
    grams = set(zip(*(tokens[i:] for i in range(n)), strict=False))
    return 1 - len(grams) / total if grams else 0.0
