"""How each claim is judged: pure functions from evidence to an outcome with its figures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from harness.bench.estimate import Estimate, difference, geometric_mean, mean
from harness.bench.regression import contrast
from harness.bench.row_figures import cost, plain_cost, ratios_by_prompt
from harness.report.benchmark import FEW_PROMPTS
from harness.report.claim_evidence import (
    NOTHING,
    ByPrompt,
    Evidence,
    Judgement,
    Outcome,
    Run,
    ends,
    every,
    judged_all,
    named,
    percent,
    shared,
    some,
    times,
    within,
)
from harness.report.claim_suites import MISMATCHED

Rule = Callable[[Evidence], Judgement]
NO_GAIN = 1.05  # a speedup below is called none: what a few per cent are worth, nobody notices
HOT = 1.0  # temperature from which on it is called high
USEFUL = 0.6  # acceptance from which on it is said to be useful
BARELY = 0.1  # acceptance below which a draft is called mismatched, if its pair does not say so
LITTLE = 0.1  # of the target's memory: less is called little
SHORT = 32  # tokens up to which an output is called short


def gains(low: float, high: float, *tasks: str) -> Rule:
    """Whether speedups of greedy runs on some tasks lie in a range."""

    def judged(found: Evidence) -> Judgement:
        runs = named([run for run in found.runs if not run.temperature])
        samples = {
            f"{name}, {task}" if len(tasks) > 1 else name: run.speedups(task)
            for name, run in runs
            for task in tasks
        }
        return judged_all(samples, geometric_mean, within(low, high))

    return judged


def code_is_easier(found: Evidence) -> Judgement:
    """Acceptance of drafts in code less that in creative text; prompts of both are resampled."""
    both = {
        name: (run.acceptance("code"), run.acceptance("creative"))
        for name, run in named(found.runs)
        if run.acceptance("code") and run.acceptance("creative")
    }
    enough = {n: pair for n, pair in both.items() if min(map(len, pair)) >= FEW_PROMPTS}
    figures = {
        name: difference([*code.values()], [*creative.values()], shared(len(enough)))
        for name, (code, creative) in enough.items()
    }
    return every(figures, _above(0), _points, few=len(enough) < len(both))


def _points(name: str, found: Estimate) -> str:
    ends_of = f"[{100 * ends(found)[0]:+.0f}, {100 * ends(found)[1]:+.0f}]"
    return f"{name} {100 * found.value:+.0f} points {ends_of}"


def _above(limit: float) -> Callable[[float, float], bool | None]:
    return lambda low, high: True if low > limit else False if high < limit else None


def _below(limit: float) -> Callable[[float, float], bool | None]:
    return lambda low, high: True if high < limit else False if low > limit else None


def creative_gains_nothing(found: Evidence) -> Judgement:
    """Speedups of creative tasks, and of all that was sampled at a high temperature."""
    samples = {}
    for name, run in named(found.runs):
        if run.temperature >= HOT:
            samples[f"{name}, sampled"] = run.speedups()
        else:
            samples[f"{name}, creative"] = run.speedups("creative")
    return judged_all(samples, geometric_mean, _below(NO_GAIN))


def mismatch_is_slower(found: Evidence) -> Judgement:
    """Speedups of pairs that are made not to match, and of drafts that are hardly ever accepted."""
    samples = {}
    for name, run in named(found.runs):
        accepted = list(run.acceptance().values())
        rare = len(accepted) >= FEW_PROMPTS and ends(mean(accepted))[1] < BARELY
        chosen = run.header.options.get("draft_choice") == "mismatched"
        if rare or chosen or run.header.pair.name.rpartition("-")[2] in MISMATCHED:
            samples[name] = run.speedups()
    return judged_all(samples, geometric_mean, _below(1))


def useful_acceptance(found: Evidence) -> Judgement:
    """Whether what gains accepts 60% or more, and what accepts less does not gain."""
    runs = [(name, run) for name, run in named(found.runs) if len(run.acceptance()) >= FEW_PROMPTS]
    level = shared(2 * len(runs))
    against, gained, lost = [], [], []
    for name, run in runs:
        speedup = geometric_mean([*run.speedups().values()], level)
        accepted = mean([*run.acceptance().values()], level)
        text = f"{times(name, speedup)} at {percent('', accepted).strip()}"
        faster, slower = ends(speedup)[0] > 1, ends(speedup)[1] < 1
        often, seldom = ends(accepted)[0] >= USEFUL, ends(accepted)[1] < USEFUL
        if (faster and seldom) or (slower and often):
            against.append(text)
        gained += [text] if faster and often else []
        lost += [text] if slower and seldom else []
    told = [f"against: {some(against)}"] if against else []
    told += [f"for: {some([*gained, *lost])}"] if gained or lost else []
    if against:
        return Judgement(Outcome.CONTRADICTED, told)
    if gained and lost:
        return Judgement(Outcome.SUPPORTED, told)
    return Judgement(Outcome.UNDECIDED, told) if runs or _some_rounds(found) else NOTHING


def _some_rounds(found: Evidence) -> bool:
    return any(run.acceptance() for run in found.runs)


def stronger_is_not_always_faster(found: Evidence) -> Judgement:
    """Two drafts of one engine on the same prompts: more tokens a target call, and yet slower."""
    pairs = [
        (one, other)
        for one, other in combinations(named(found.runs), 2)
        if _one_engine(one[1], other[1])
    ]
    compared = {
        (one, other): (_ratio(a.lengths(), b.lengths(), len(pairs)), a, b)
        for (one, a), (other, b) in pairs
    }
    examples, counter = [], []
    for (one, other), (length, a, b) in compared.items():
        if length is None or within(1, 1)(*ends(length)) is not False:
            continue
        stronger = one if length.value > 1 else other
        speed = _ratio(a.speedups(), b.speedups(), len(pairs))
        if speed is None or within(1, 1)(*ends(speed)) is not False:
            continue
        faster = one if speed.value > 1 else other
        weaker = other if stronger == one else one
        if faster == stronger:
            counter.append(f"{stronger} over {weaker}")
            continue
        more = max(length.value, 1 / length.value)
        low, high = sorted((1 / end for end in ends(speed)) if speed.value > 1 else ends(speed))
        value = min(speed.value, 1 / speed.value)
        examples.append(
            f"{stronger} gives {more:.2f} times the tokens per call of {weaker}, and "
            f"{value:.2f}x [{low:.2f}, {high:.2f}] of its speedup"
        )
    told = [f"for: {some(examples)}"] if examples else []
    told += [f"stronger and faster: {some(counter)}"] if counter else []
    if examples:
        return Judgement(Outcome.SUPPORTED, told)
    return Judgement(Outcome.UNDECIDED, told) if compared else NOTHING


def _one_engine(one: Run, other: Run) -> bool:
    """Decoders of a family, named alike, in one run: they differ in what drafts."""
    families = [run.decoder.partition("-")[0] for run in (one, other)]
    return one.header is other.header and families[0] == families[1] and ":" not in one.decoder


def _ratio(above: ByPrompt, below: ByPrompt, tests: int) -> Estimate | None:
    """In the geometric mean, prompt by prompt where they are the same."""
    found = contrast(above, below, set(above), shared(2 * tests))
    return found.ratio if found and found.prompts >= FEW_PROMPTS else None


def shrinks_with_batch(found: Evidence) -> Judgement:
    """Speedup at the largest batch over that at the smallest, all else equal."""
    groups: dict[tuple[object, ...], dict[int, Run]] = {}
    for run in found.runs:
        options, pair = run.header.options, run.header.pair
        same = ("draft_tokens", "max_new_tokens", "prompt_tokens", "draft_choice")
        key = (run.decoder, pair, run.temperature, *map(options.get, same))
        groups.setdefault(key, {})[int(options.get("batch_size") or 1)] = run
    several = {key: runs for key, runs in groups.items() if len(runs) > 1}
    figures, told = {}, []
    for (decoder, *_), runs in several.items():
        small, large = min(runs), max(runs)
        change = _ratio(runs[large].speedups(), runs[small].speedups(), len(several))
        if change is None:
            continue
        figures[f"{decoder}, batch {large} over {small}"] = change
        speedup = geometric_mean([*runs[large].speedups().values()], shared(len(several)))
        if ends(speedup)[1] < 1:
            told.append(
                f"slower than plain decoding: {times(f'{decoder}, batch {large}', speedup)}"
            )
    judged = every(figures, _below(1), few=len(figures) < len(several))
    return Judgement(judged.outcome, [*judged.figures, *told])


def short_gains_less(found: Evidence) -> Judgement:
    """Speedups of prompts with short outputs over those of the others of the same run."""
    both = {}
    for name, run in named(found.runs):
        short = [row for row in run.rows if len(row.plain_tokens) <= SHORT]
        others = [row for row in run.rows if len(row.plain_tokens) > SHORT]
        if short and others:
            both[name] = tuple(ratios_by_prompt(r, plain_cost, cost) for r in (short, others))
    figures = {
        name: ratio
        for name, (short, others) in both.items()
        if (ratio := _ratio(short, others, len(both))) is not None
    }
    return every(figures, _below(1), few=len(figures) < len(both))


def composes_with_int8(found: Evidence) -> Judgement:
    """Lossless on a target in int8, and faster than plain decoding of that target."""
    wrong = [
        f"{of.decoder} ({of.losslessness.faults} of {of.losslessness.total} outputs differ)"
        for of in found.outputs
        if of.header.pair.dtype == "int8" and of.losslessness.faults
    ]
    if wrong:
        return Judgement(Outcome.CONTRADICTED, [f"against: {some(wrong)}"])
    runs = [(name, run) for name, run in named(found.runs) if run.header.pair.dtype == "int8"]
    return judged_all({name: run.speedups() for name, run in runs}, geometric_mean, _above(1))


def memory(found: Evidence) -> Judgement:
    """What the draft adds to the target's bytes, of weights and of the cache of a token.

    Whatever the length of the text, the share lies between these two: they are its interval.
    """
    shares = {}
    for header in found.headers:
        sizes = header.options.get("memory") or {}
        ratios = [
            sizes[f"draft_{kind}"] / sizes[f"target_{kind}"]
            for kind in ("weights", "cache")
            if sizes.get(f"target_{kind}") and f"draft_{kind}" in sizes
        ]
        if ratios:
            name = f"{header.pair.name} in {header.pair.dtype}"
            shares[name] = Estimate(ratios[0], min(ratios), max(ratios))
    return every(shares, _below(LITTLE), percent)
