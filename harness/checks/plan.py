"""What one check of sampled output asks of a decoder, settled before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from harness.checks import members
from harness.checks.budget import Budget
from harness.checks.continuations import TOKENS, Floats, Laws, position
from harness.checks.members import Ints, Sample
from harness.checks.subject import Refused, Subject
from harness.contract import Completion, Request
from harness.stats import chi_square

POWER = 0.99
EFFECT = "over-acceptance by a factor of 1.1"  # what the sample size is computed for,
# or, where the draft is so good or so bad that acceptance hardly shows in the output:
EFFECT_OF_ANY_DRAFT = "1 in 10 tokens is the most likely one instead of a draw"
REACH = 2  # times the profile's limit: an effect that takes more than that is not aimed at
ROUNDS_ALIKE = 0.2  # of outputs repeat token 0 at token K+1; reused coins show only that much
CALLS_ALIKE = 0.3  # of answers repeat the call before; what goes wrong there goes wrong mostly
CALLS = 8  # that answer the same unseeded request, several rows each


@dataclass(frozen=True)
class Plan:
    """What is asked of each arm, and at what level it is judged.

    Attributes
    ----------
    alpha : float
        Of one arm.
    tests : int
        Most tests among which an arm shares it.
    effect : str
        What ``needed`` is computed for.
    needed, samples, longer : int
        Outputs that it takes to find it, outputs asked for, and how many of them are longer.
    calls, rows : int
        Of the same unseeded request; calls are even.
    visible : list of str
        Faults that these samples would show.
    """

    laws: Laws
    request: Request
    controlled: bool
    reports_rounds: bool
    alpha: float
    tests: int
    effect: str
    needed: int
    samples: int
    longer: int
    calls: int
    rows: int
    visible: list[str]

    @classmethod
    def of(cls, subject: Subject, budget: Budget, request: Request) -> Plan:
        laws = Laws.of(subject.pair, request)
        declared = subject.decoder.capabilities
        tables = 1 + TOKENS + (laws.lagged is not None) + 2
        if "rounds" in declared:
            tables += request.draft_tokens + 1
        tests = tables * len(members.STATISTICS)
        alpha = budget.alpha / (1 + ("plain" in declared))
        each = alpha / tests  # Bonferroni is Holm's worst case

        def pairs_needed(law: Floats, alike: float) -> int:
            repeats = (1 - alike) * law + alike * np.diag(laws.first).ravel()
            return chi_square.samples_needed(law, repeats, each, POWER, most=budget.samples)

        independent = np.outer(laws.first, laws.first).ravel()
        answers = min(2 * pairs_needed(independent, CALLS_ALIKE), budget.samples // 4)
        calls = min(CALLS, answers) // 2 * 2
        rows = answers // calls if calls else 0

        views = [(laws.joint, laws.alternatives)]
        for i in range(TOKENS):
            at = {n: position(a, len(laws.first), i) for n, a in laws.alternatives.items()}
            views.append((position(laws.joint, len(laws.first), i), at))

        def needed_for(effect: str) -> int:
            return min(chi_square.samples_needed(law, a[effect], each, POWER) for law, a in views)

        effect, needed = EFFECT, needed_for(EFFECT)
        if needed > REACH * budget.samples:
            effect, needed = EFFECT_OF_ANY_DRAFT, needed_for(EFFECT_OF_ANY_DRAFT)
        samples = min(needed, budget.samples - calls * rows)
        lagged = independent if laws.lagged is None else laws.lagged
        return cls(
            laws=laws,
            request=request,
            controlled="plain" in declared,
            reports_rounds="rounds" in declared,
            alpha=alpha,
            tests=tests,
            effect=effect,
            needed=needed,
            samples=samples,
            longer=min(samples, pairs_needed(lagged, ROUNDS_ALIKE)),
            calls=calls,
            rows=rows,
            visible=[
                name
                for name in laws.alternatives
                if any(chi_square.power(law, a[name], samples, each) >= POWER for law, a in views)
            ],
        )

    @property
    def each(self) -> float:
        """Level of one test in the worst case."""
        return self.alpha / self.tests

    def ask(self, subject: Subject, request: Request) -> Sample:
        """Let one arm answer.

        Seeds are fixed where the decoder takes them, so a run can be repeated to the token; the
        calls are for what a decoder does without one.
        """
        seeded = "seed" in subject.decoder.capabilities
        offset = 0 if request.speculate else self.samples  # the control arm is independent
        seeds = [offset + i if seeded else None for i in range(self.samples)]

        def outputs(tokens: int, seeds: Sequence[int | None]) -> list[Completion]:
            asked = msgspec.structs.replace(request, max_new_tokens=tokens)
            return _answers(subject, [msgspec.structs.replace(asked, seed=seed) for seed in seeds])

        undrafted = int(request.speculate)  # the last token, which is not looked at
        width = request.max_new_tokens - 1
        longer = outputs(width + undrafted, seeds[: self.longer])
        answers = longer + outputs(TOKENS + undrafted, seeds[self.longer :])
        short = msgspec.structs.replace(request, max_new_tokens=1 + undrafted)
        calls = [_answers(subject, [short] * self.rows) for _ in range(self.calls)]
        first = [[a.tokens[0] for a in call] for call in calls]
        reported = [a.rounds for a in longer if a.rounds is not None]
        return Sample(
            outputs=np.array([a.tokens[:TOKENS] for a in answers]),
            longer=np.array([a.tokens[:width] for a in longer]),
            rounds=reported if len(reported) == len(longer) else None,
            calls=np.array(first, dtype=np.int64).reshape(self.calls, self.rows),
        )

    def round_starts(self, sample: Sample) -> tuple[Ints | None, dict[str, str]]:
        """Where rounds begin in the speculative arm, and why members are left out."""
        k, left_out = self.request.draft_tokens, {}
        vocab = len(self.laws.first)
        if self.laws.lagged is None:
            left_out[f"tokens 0 and {k + 1}"] = f"{vocab}^{k + 2} outcomes are too many"
        starts = None
        if not self.reports_rounds:
            left_out["after a accepted"] = "the decoder does not report rounds"
        elif sample.rounds is None:
            left_out["after a accepted"] = "an output came without rounds"
        else:
            tokens = self.request.max_new_tokens
            starts = members.round_starts(sample.rounds, k, tokens, tokens - 1)
            if starts is None:
                left_out["after a accepted"] = "the rounds do not add up to the tokens"
        return starts, left_out


def _answers(subject: Subject, requests: Sequence[Request]) -> list[Completion]:
    completions = subject.ask(requests) if requests else []
    for request, completion in zip(requests, completions, strict=True):
        if len(completion.tokens) != request.max_new_tokens:
            problem = f"{len(completion.tokens)} tokens of {request.max_new_tokens} asked for"
            raise Refused(problem, [request])
    return completions
