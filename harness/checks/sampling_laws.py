"""Sampled output follows the target's law under every sampling parameter.

On a pair so small that the law of a whole block is enumerated exactly: support first, then
chi-square. The faults that are looked for move much of the law, so a few thousand outputs do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from harness import oracle
from harness.checks.budget import Budget
from harness.checks.continuations import (
    TOKENS,
    Floats,
    position,
    require_enumerable,
)
from harness.checks.distribution import impossible, rejected
from harness.checks.members import STATISTICS, Ints
from harness.checks.prompts import random_prompt
from harness.checks.subject import Refused, Subject, check
from harness.checks.toy_grammars import alternating
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair
from harness.stats import chi_square
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.sampling import one_hot

NAME = "sampling_params.law"
K = TOKENS - 1  # the tokens that are looked at are a whole block
SAMPLES = 1_200  # at most
PROMPTS = 6  # of which that is taken that shows most
POWER = 0.99


@dataclass(frozen=True)
class Setting:
    """Sampling parameters, and others that they could be mistaken for.

    Attributes
    ----------
    sampling : Sampling
    mistaken : dict of str to Sampling
        What a faulty verify step would apply instead, by the words for it.
    kind : FaultClass
    eos : tuple of int
    """

    sampling: Sampling
    mistaken: Mapping[str, Sampling]
    kind: FaultClass = FaultClass.PROCESSORS
    eos: tuple[int, ...] = ()


def _hot(temperature: float, **others: float) -> Setting:
    """A temperature and filters."""
    given = Sampling(temperature=temperature, **others)  # type: ignore[arg-type]
    mistaken = {
        "temperature 1": msgspec.structs.replace(given, temperature=1.0),
        "the temperature applied twice": msgspec.structs.replace(given, temperature=temperature**2),
    }
    if others:
        mistaken["no filters"] = Sampling(temperature=temperature)
    return Setting(given, mistaken, FaultClass.PARAMETERS)


def _processed(**parameters: object) -> Setting:
    """Something that comes before the temperature, at temperature 1."""
    given = Sampling(temperature=1.0, **parameters)  # type: ignore[arg-type]
    return Setting(given, {f"no {' and '.join(parameters)}": Sampling(temperature=1.0)})


SETTINGS: Mapping[str, Setting] = {
    "T=0.3": _hot(0.3),
    "T=2": _hot(2.0),
    "T=1.5 top_k=4 top_p=0.7": _hot(1.5, top_k=4, top_p=0.7),
    "T=1.5 min_p=0.25": _hot(1.5, min_p=0.25),
    "repetition": _processed(repetition_penalty=1.8),
    "presence": _processed(presence_penalty=2.0),
    "frequency": _processed(frequency_penalty=1.5),
    "negative frequency": _processed(frequency_penalty=-1.0),
    "bias": _processed(logit_bias={1: 3.0, 2: -3.0, 5: -float("inf")}),
    "grammar": _processed(grammar=alternating(range(8), marker=2)),
    "min_new_tokens": Setting(
        Sampling(temperature=1.0, min_new_tokens=1),
        {
            f"min_new_tokens {least}": Sampling(temperature=1.0, min_new_tokens=least)
            for least in (0, 2)
        },
        FaultClass.END,
        eos=(2,),
    ),
}


@check(NAME, "sampling")
def law(subject: Subject, budget: Budget, setting: str) -> Verdict:
    """Support, then Pearson and G on the joint law of a block and on each of its tokens.

    Temperatures on both sides of 1, filters together where their order matters, penalties of both
    signs, bias, a grammar, and EOS that may come from the second token on.
    """
    pair, chosen = subject.pair, SETTINGS[setting]
    require_enumerable(pair, TOKENS)
    request, right, wrong = _telling(pair, budget, chosen)
    subject.require(*request.capabilities())

    arms = [request]
    if "plain" in subject.decoder.capabilities:
        arms.append(msgspec.structs.replace(request, speculate=False))
    samples, alpha = min(budget.samples, SAMPLES), budget.alpha / len(arms)
    found = [
        _Arm.of(subject, arm, right, range(i * samples, (i + 1) * samples), alpha)
        for i, arm in enumerate(arms)
    ]
    where = f"({setting}, K={K}, {samples} samples)"
    evidence = {"alpha_of_an_arm": alpha, "samples": samples} | {
        name: arm.p_values for name, arm in zip(("speculative", "plain"), found, strict=False)
    }
    against = found[0].rejected
    if found[-1].rejected and len(found) > 1:
        blame = "its own plain decoding does not follow the law: speculation is not to blame"
        return Verdict(
            check=NAME,
            status=Status.ERROR,
            message=f"{found[-1].rejected}; {blame} {where}",
            evidence=evidence,
        )
    if against:
        bare = msgspec.structs.replace(request, sampling=Sampling(temperature=1.0), eos=())
        seeds = range(2 * samples, 3 * samples)
        kind: FaultClass | None = chosen.kind
        likely = _likeliest(found[0].counts, right, wrong)
        if _Arm.of(subject, bare, _joint(pair, bare), seeds, alpha).rejected:
            likely, kind = "none of these parameters: at temperature 1 alone it is wrong too", None
        return Verdict(
            check=NAME,
            status=Status.FAIL,
            message=f"{against} {where}",
            likely_fault=likely,
            fault_class=kind,
            evidence=evidence,
        )
    each = alpha / (len(STATISTICS) * (TOKENS + 1))
    visible = [
        name
        for name, other in wrong.items()
        if any(
            chi_square.power(p, a, samples, each) >= POWER
            for _, p, a in _tables(right, other, vocab=pair.vocab_size)
        )
    ]
    return Verdict(
        check=NAME,
        status=Status.PASS if visible else Status.INCONCLUSIVE,
        message=f"a block of {TOKENS} tokens follows the target's law {where}",
        ruled_out=f"(power {POWER}) {'; '.join(visible)}" if visible else "",
        evidence=evidence,
    )


@dataclass(frozen=True)
class _Arm:
    """What one way of decoding gave.

    Attributes
    ----------
    counts : ndarray [V ** TOKENS], int64
        Of the joint outcomes.
    p_values : dict of str to float
        Of each test; none where the support check decides.
    rejected : str
        What speaks against the law, in words; empty for nothing.
    """

    counts: Ints
    p_values: Mapping[str, float]
    rejected: str

    @classmethod
    def of(
        cls, subject: Subject, request: Request, right: Floats, seeds: range, alpha: float
    ) -> _Arm:
        """Ask for an output with each seed, and test them at level ``alpha``."""
        pair, seeded = subject.pair, "seed" in subject.decoder.capabilities
        requests = [
            msgspec.structs.replace(request, seed=seed if seeded else None) for seed in seeds
        ]
        outputs = [_block(r, a) for r, a in zip(requests, subject.ask(requests), strict=True)]
        base = pair.vocab_size ** np.arange(TOKENS - 1, -1, -1)
        filled = [tokens + [tokens[-1]] * (TOKENS - len(tokens)) for tokens in outputs]
        counts = np.bincount(np.array(filled) @ base, minlength=len(right))
        if outside := impossible(pair, request, [np.array(tokens) for tokens in outputs]):
            return cls(counts, {}, outside)
        tests = {
            f"{name}, {statistic}": chi_square.goodness_of_fit(seen, expected, statistic)
            for name, expected, seen in _tables(right, counts, vocab=pair.vocab_size)
            for statistic in STATISTICS
        }
        _, words = rejected(tests, alpha)
        return cls(counts, {name: test.p_value for name, test in tests.items()}, words)


def _block(request: Request, answer: Completion) -> list[int]:
    """The tokens that are looked at, up to an EOS."""
    tokens = answer.tokens[:TOKENS]
    ends = [i for i, token in enumerate(tokens) if token in request.eos]
    if not ends and len(tokens) < TOKENS:
        problem = f"{len(tokens)} tokens of {request.max_new_tokens} asked for"
        raise Refused(problem, [request])
    return tokens[: ends[0] + 1] if ends else tokens


def _tables(*joint: NDArray[Any], vocab: int) -> Iterator[tuple[Any, ...]]:
    """Name and tables of the block and of each of its tokens, for counts and laws alike."""
    yield (f"{TOKENS} tokens", *joint)
    for i in range(TOKENS):
        yield (f"token {i}", *(position(cells, vocab, i) for cells in joint))


def _telling(
    pair: ModelPair, budget: Budget, setting: Setting
) -> tuple[Request, Floats, Mapping[str, Floats]]:
    """The prompt after which the laws differ most, the right one [V ** TOKENS] and the others."""

    def laws(seed: int) -> tuple[Request, Floats, Mapping[str, Floats]]:
        request = Request(
            prompt=random_prompt(pair, 3, seed),
            max_new_tokens=TOKENS + 1,  # the last token of a request is never drafted
            sampling=setting.sampling,
            eos=setting.eos,
            draft_tokens=K,
        )
        others = {
            name: msgspec.structs.replace(request, sampling=sampling)
            for name, sampling in setting.mistaken.items()
        }
        return request, _joint(pair, request), {n: _joint(pair, r) for n, r in others.items()}

    def distance(found: tuple[Request, Floats, Mapping[str, Floats]]) -> float:
        _, right, wrong = found
        return min(float(np.abs(right - other).sum()) for other in wrong.values())

    return max((laws(budget.seed + i) for i in range(PROMPTS)), key=distance)


def _joint(pair: ModelPair, request: Request) -> Floats:
    """Law of the first tokens [V ** TOKENS]; an output that has ended repeats its EOS."""
    vocab = pair.vocab_size
    laws = oracle.joint_law(pair.target, request, TOKENS, vocab)
    before = oracle.prefixes(TOKENS, vocab)
    for eos in request.eos:
        ended = torch.cat([torch.zeros(len(before), 1), (before == eos).cumsum(1)], 1) > 0
        laws = torch.where(ended.unsqueeze(2), one_hot(torch.tensor(eos), vocab), laws)
    joint: Floats = oracle.joint(laws).numpy()
    return joint


def _likeliest(counts: Ints, right: Floats, wrong: Mapping[str, Floats]) -> str:
    """The mistake under which the counts are likelier than under the right law, if one is."""
    floor = 1e-12  # a law that forbids what was seen is out, but stays comparable

    def score(law: Floats) -> float:
        return float(counts @ np.log(np.maximum(law, floor)))

    best = max(wrong, key=lambda name: score(wrong[name]))
    gain = (score(wrong[best]) - score(right)) / np.log(10)
    if gain < 3:
        return "the law of some rows of a block is made otherwise than in plain decoding"
    times = f"10^{gain:.0f} times likelier than the target's law"
    if (right[counts > 0] == 0).any():
        times = "which allows what was seen"
    return f"{best} in rows of a block ({times})"
