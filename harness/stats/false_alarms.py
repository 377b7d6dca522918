"""The statistics of this package, each on right decoders: what ``calibration`` counts.

A study gives, for each run, the level from which on the run is rejected: a p-value, or one over
the largest wealth that a bettor has had at any look. The functions called are those that decide,
with two exceptions: the e-process and the certificates of many runs at once
(``harness.stats.many_runs``). The first of the runs goes through ``EProcess`` and ``Certificate``
as well, and what they say must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from harness.checks import members
from harness.checks.arms import LOWEST
from harness.checks.continuations import TOKENS, Laws
from harness.checks.members import Member, Sample
from harness.stats import chi_square, experts, many_runs, mmd, pit, simulated, two_sample
from harness.stats.acceptance import AcceptanceTest
from harness.stats.certificate import LEAK, OVER_ACCEPTANCE, Family
from harness.stats.eprocess import EProcess
from harness.stats.paired_bets import PairedBets
from harness.stats.right_decoders import (
    DRAFTS,
    LEAKS,
    OVER_ACCEPTING,
    RIGHT,
    Models,
    Rule,
    Runs,
    decode,
    plain,
)
from harness.stats.trials import Trials

Floats = NDArray[np.float64]
Levels = dict[str, Floats]  # by statistic, [runs]
LEVELS = (0.01, 0.05)  # at which false alarms are counted

LENGTH = 256  # tokens of a run
LONG = 1024  # where a certificate has something to say
SLACK = 0.1  # nats by which an engine's law is off
ANSWERS = 300  # to one prompt, for a chi-square test
CHAIN_VOCAB = 5
CALLS, ROWS = 8, 16
SEQUENCES, SHORT = 24, 4  # of an arm, and tokens of each
PAIRS = 48
RESAMPLES = 199

MODELS = Models.of(simulated.contexts())
CHAIN = Models.chain(CHAIN_VOCAB)


def _anywhere(count: int, generator: Generator) -> Tensor:
    return torch.randint(len(MODELS.rows), (count,), generator=generator)


def _level(rejects: Callable[[float], object]) -> float:  # 1 if at none of them
    return min((alpha for alpha in LEVELS if rejects(alpha)), default=1.0)


def _agree(many: float, alone: float) -> None:
    if abs(many - alone) > 1e-6:
        raise RuntimeError(f"runs at once give {many}, the statistic itself {alone}")


# --- bets on tokens ------------------------------------------------------------------------------


def e_process(rule: Rule, runs: int, generator: Generator, slack: float = 0.0) -> Levels:
    """Looked at after every token. With slack: on an engine whose law is not quite the oracle's."""
    rows, engine = MODELS.rows, MODELS
    if slack:
        noise = torch.rand(rows.p.shape, generator=generator, dtype=torch.float64) - 0.5
        engine = replace(MODELS, rows=replace(rows, p=(rows.p.log() + slack * noise).softmax(-1)))
    made = decode(rule, engine, LENGTH, _anywhere(runs, generator), generator)
    own = engine.rows.p[made.contexts, made.tokens].log()
    off = (own - rows.p[made.contexts, made.tokens].log()).clamp(-slack, slack)
    tilts = {q: many_runs.tilt_gains(rows, made, q).unsqueeze(2) for q in (True, False)}
    found = {}
    for name, named, q in (
        ("q known", experts.NAMED, True),
        ("q unknown", experts.NAMED, False),
        ("tilt alone", (), True),
    ):
        process = EProcess(named, q=q, alpha=LEVELS[0])
        gains = torch.cat([many_runs.fixed_gains(process, rows, made), tilts[q]], 2)
        peaks = many_runs.peaks(process, gains - off.unsqueeze(2))
        process.update(many_runs.rows_of(rows, made, 0, q, own), slack)
        _agree(float(peaks[0]), process.largest)
        found[f"e-process, {name}{', slack' if slack else ''}"] = (-peaks).exp().numpy()
    return found


def certificate(
    rule: Rule, runs: int, generator: Generator, family: Family, truth: float
) -> Levels:
    """Its bound is ever below the truth."""
    start = _anywhere(runs, generator)
    made = decode(rule, MODELS, LONG, start, generator, drafts=LONG)  # no bonus tokens
    levels = np.ones(runs)
    for alpha in sorted(LEVELS, reverse=True):
        bounds = many_runs.uppers(family, MODELS.rows, made, alpha)
        _agree(float(bounds[0]), many_runs.upper(family, MODELS.rows, made, 0, alpha))
        levels[(bounds < truth).numpy()] = alpha
    return {f"certificate of {family.name}": levels}


# --- counts --------------------------------------------------------------------------------------


def one_prompt(rule: Rule, runs: int, generator: Generator) -> Levels:
    """First tokens of many answers to one prompt."""
    prompts = _anywhere(runs, generator)
    made = decode(rule, MODELS, 1, prompts.repeat_interleave(ANSWERS), generator)
    vocab = MODELS.rows.p.shape[1]
    laws = MODELS.rows.p[prompts].numpy()
    counts = [np.bincount(t, minlength=vocab) for t in made.tokens.view(runs, -1).numpy()]
    return {
        f"chi-square, one prompt, {statistic}": np.array([
            chi_square.goodness_of_fit(c, law, statistic).p_value
            for c, law in zip(counts, laws, strict=True)
        ])
        for statistic in members.STATISTICS
    }  # fmt: skip


def pooled_pit(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Tokens of many contexts together."""
    made = decode(rule, MODELS, LENGTH, _anywhere(runs, generator), generator)
    u = torch.rand(made.tokens.numel(), generator=generator, dtype=torch.float64).numpy()
    laws = MODELS.rows.p[made.contexts.flatten()].numpy()
    values = pit.pit(laws, made.tokens.flatten().numpy(), u).reshape(runs, -1)
    return {"PIT chi-square": np.array([pit.uniformity(v).p_value for v in values])}


def _after_context_0(p: Floats) -> Laws:
    joint = (p[0][:, None, None] * p[:, :, None] * p[None]).ravel()
    lagged = (p[0][:, None] * np.linalg.matrix_power(p, DRAFTS + 1)).ravel()
    return Laws(joint, p[0], lagged, {}, joint, "")


CHAIN_LAWS = _after_context_0(CHAIN.rows.p.numpy())


def family(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Positions, their joint law, lag, calls, rows and rounds: two statistics each, Holm."""
    start = torch.zeros(runs * ANSWERS, dtype=torch.int64)
    made = decode(rule, CHAIN, DRAFTS + 2, start, generator)
    calls = decode(rule, CHAIN, 1, start[: runs * CALLS * ROWS], generator).tokens
    longer = made.tokens.view(runs, ANSWERS, -1).numpy()
    levels = np.ones(runs)
    after = np.stack([_after(made, a, generator) for a in range(DRAFTS + 1)])
    after = after.reshape(DRAFTS + 1, runs, ANSWERS)
    for run, answers in enumerate(calls.view(runs, CALLS, ROWS).numpy()):
        sample = Sample(longer[run][:, :TOKENS], longer[run], None, answers)
        tables = [
            *members.of_outputs(sample, CHAIN_LAWS, CHAIN_VOCAB),
            *members.of_lag(sample, CHAIN_LAWS, DRAFTS + 1, CHAIN_VOCAB),
            *members.of_calls(answers, CHAIN_LAWS.first),
            *(
                Member(f"after {a}", pit.binned(v[~np.isnan(v)]), pit.uniform(), pit.uniform(), "")
                for a, v in enumerate(after[:, run])
                if not np.isnan(v).all()
            ),
        ]
        p_values = {n: r.p_value for table in tables for n, r in table.results().items()}
        levels[run] = _level(partial(chi_square.holm, p_values))
    return {"chi-square family, Holm": levels}


def _after(made: Runs, accepted: int, generator: Generator) -> Floats:
    """PIT of the tokens after the first round that accepted so many, [R]; NaN for none."""
    at = made.after(accepted)
    u = torch.rand(len(at), generator=generator, dtype=torch.float64).numpy()
    laws = CHAIN.rows.p[made.contexts[range(len(at)), at]].numpy()
    values = pit.pit(laws, made.tokens[range(len(at)), at].numpy(), u)
    return np.where(at.numpy() < 0, np.nan, values)


# --- two arms ------------------------------------------------------------------------------------


def _scores(rule: Rule, start: Tensor, runs: int, generator: Generator) -> Floats:
    """What each answer wins for each named expert, [runs, answers, J]."""
    made = decode(rule, MODELS, SHORT, start, generator)
    table = experts.log_ratios(experts.NAMED, MODELS.rows.everywhere).clamp(min=LOWEST)
    scores: Floats = table[made.contexts, made.tokens].sum(1).view(runs, -1, table.shape[2]).numpy()
    return scores


def permutation(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Scores of answers to requests drawn for each arm by itself."""
    starts = [_anywhere(runs * SEQUENCES, generator) for _ in range(2)]
    arms = [_scores(r, s, runs, generator) for r, s in zip((rule, plain), starts, strict=True)]
    seed = generator.initial_seed()
    found = [
        two_sample.permutation(one, other, RESAMPLES, seed + run).p_value
        for run, (one, other) in enumerate(zip(*arms, strict=True))
    ]
    return {"permutation of scores": np.array(found)}


def paired_bets(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Scores of answers to the same requests, looked at after every pair."""
    start = _anywhere(runs * PAIRS, generator)
    one, other = (_scores(r, start, runs, generator) for r in (rule, plain))
    levels = np.ones(runs)
    for run, differences in enumerate(one - other):
        bets = PairedBets(differences.shape[1])
        bets.update(differences)
        levels[run] = _level(bets.decision)
    return {"paired bets": levels}


def hamming_mmd(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Token ids of answers to one prompt."""
    start = _anywhere(runs, generator).repeat_interleave(SEQUENCES)
    arms = [
        decode(r, MODELS, SHORT, start, generator).tokens.view(runs, SEQUENCES, SHORT).numpy()
        for r in (rule, plain)
    ]
    seed = generator.initial_seed()
    found = [
        mmd.hamming_mmd(one, other, RESAMPLES, seed + run).p_value
        for run, (one, other) in enumerate(zip(*arms, strict=True))
    ]
    return {"Hamming MMD": np.array(found)}


# --- acceptance ----------------------------------------------------------------------------------


def trials_of(made: Runs, run: int, first: int, last: int) -> Trials:
    """Drafted positions among tokens ``first`` to ``last`` (excluded) of a run."""
    place, accepted, contexts = (
        x[run, first:last] for x in (made.place, made.accepted, made.contexts)
    )
    drafted = place < DRAFTS
    beta = MODELS.rows.kept()[contexts[drafted], 0]
    return Trials(place[drafted].numpy(), accepted[drafted].numpy(), beta.numpy())


def acceptance(rule: Rule, runs: int, generator: Generator) -> Levels:
    """Looked at after every few tokens, in both directions."""
    made = decode(rule, MODELS, LENGTH, _anywhere(runs, generator), generator)
    found: dict[str, list[float]] = {}
    for run in range(runs):
        test = AcceptanceTest(LEVELS[0])
        for first in range(0, LENGTH, many_runs.LOOK):
            test.update(trials_of(made, run, first, first + many_runs.LOOK))
        for name, largest in test.state()["largest"].items():
            found.setdefault(f"acceptance, {name}", []).append(np.exp(-largest))
    return {name: np.array(levels) for name, levels in found.items()}


@dataclass(frozen=True)
class Study:
    """Runs of one or more statistics on decoders.

    Attributes
    ----------
    measure : callable
        (rule, runs, generator) -> level of each run, by statistic.
    decoders : dict of str to Rule
        Those that must not be rejected.
    """

    measure: Callable[[Rule, int, Generator], Levels]
    decoders: Mapping[str, Rule]


_TWO = {name: RIGHT[name] for name in ("draws from p", "rejection")}
STUDIES: dict[str, Study] = {
    "e-process": Study(e_process, RIGHT),
    "e-process, slack": Study(partial(e_process, slack=SLACK), _TWO),
    **{
        f"certificate of {f.name}, {truth:g}": Study(
            partial(certificate, family=f, truth=truth), {f"{f.name} {truth:g}": rule}
        )
        for f, rules in ((LEAK, LEAKS), (OVER_ACCEPTANCE, OVER_ACCEPTING))
        for truth, rule in rules.items()
    },
    "chi-square, one prompt": Study(one_prompt, RIGHT),
    "chi-square family, Holm": Study(family, RIGHT),
    "PIT chi-square": Study(pooled_pit, RIGHT),
    "permutation of scores": Study(permutation, _TWO),
    "paired bets": Study(paired_bets, _TWO),
    "Hamming MMD": Study(hamming_mmd, _TWO),
    "acceptance": Study(acceptance, {"rejection": RIGHT["rejection"]}),
}
