"""Sampled output follows the target's law.

The support check first: one token of probability zero is proof by itself. Then the chi-square
family (``members``) on a pair so small that the laws of its tokens are enumerated exactly. The
decoder's plain arm goes through the same tests: if it fails, the oracle does not describe this
engine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from harness import oracle
from harness.checks import members, naming
from harness.checks.budget import Budget
from harness.checks.continuations import TOKENS as TOKENS
from harness.checks.continuations import require_enumerable
from harness.checks.members import Ints, Member, Sample
from harness.checks.places import places
from harness.checks.plan import EFFECT as EFFECT
from harness.checks.plan import EFFECT_OF_ANY_DRAFT as EFFECT_OF_ANY_DRAFT
from harness.checks.plan import POWER, Plan
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.stats import chi_square
from harness.stats.eprocess import EProcess
from harness.stats.experts import NAMED, of_sampling
from harness.verdict import FaultClass, Status, Verdict

PROMPTS = 4  # of which the first is taken that says something
SETTINGS: Mapping[str, Sampling] = {
    "T=1": Sampling(temperature=1.0),
    "T=1.4": Sampling(temperature=1.4),
    "T=0.7 top_k=5 top_p=0.9": Sampling(temperature=0.7, top_k=5, top_p=0.9),
    "T=1 min_p=0.1": Sampling(temperature=1.0, min_p=0.1),
}
CONVINCING = math.log(1e3)  # that a named fault must be likelier than none


@check("distribution.family", "sampling")
def family(subject: Subject, budget: Budget, setting: str, draft_tokens: int) -> Verdict:
    """Support, then Pearson and G on every member of the chi-square family, Holm over all.

    Every token is a draw from p whatever the rounds look like, so all counts are multinomial with
    exactly known laws. N is what the best member needs to find ``EFFECT`` with probability
    ``POWER`` at its share of alpha, or the profile's limit, which holds for each arm, if that is
    less. The arms share alpha: a right decoder is called wrong, or its oracle, at most that often.
    """
    return _judge(subject, "distribution.family", budget, setting, draft_tokens)


@check("distribution.recovered", "sampling")
def recovered(subject: Subject, budget: Budget) -> Verdict:
    """The same of a draft that is mostly rejected, so that most tokens come from the residual.

    Kills alone: resample_from_target_subtle.
    """
    return _judge(subject, "distribution.recovered", budget, "T=1", draft_tokens=2)


def _telling(subject: Subject, budget: Budget, request: Request) -> Plan:
    """The plan for the first prompt after which some fault would show; filters may leave none."""
    for attempt in range(PROMPTS):
        prompt = random_prompt(subject.pair, 3, budget.seed + attempt)
        plan = Plan.of(subject, budget, msgspec.structs.replace(request, prompt=prompt))
        if plan.visible:
            break
    return plan


def _judge(subject: Subject, name: str, budget: Budget, setting: str, draft_tokens: int) -> Verdict:
    pair = subject.pair
    conclude = functools.partial(Verdict, check=name)
    require_enumerable(pair, TOKENS)
    request = Request(
        prompt=random_prompt(pair, 3, budget.seed),
        # One more than is looked at: the last token of a request is never drafted.
        max_new_tokens=max(TOKENS, draft_tokens + 2) + 1,
        sampling=SETTINGS[setting],
        draft_tokens=draft_tokens,
    )
    subject.require(*request.capabilities())

    plan = _telling(subject, budget, request)
    request = plan.request
    sample = plan.ask(subject, request)
    starts, left_out = plan.round_starts(sample)
    arms = {"speculative": _Arm.of(plan, sample, starts, subject, budget)}
    if plan.controlled:
        plain = plan.ask(subject, msgspec.structs.replace(request, speculate=False))
        arms["plain"] = _Arm.of(plan, plain, starts, subject, budget)
    spec, control = arms["speculative"], arms.get("plain")
    evidence = {
        "alpha": budget.alpha,
        "alpha_of_an_arm": plan.alpha,
        "tests": plan.tests,
        "samples": plan.samples + plan.calls * plan.rows,
        "effect": plan.effect,
        "samples_needed": plan.needed,
        "left_out": left_out,
        **spec.evidence(plan),
        "plain_arm": control.evidence(plan) if control else "not declared",
    }
    where = f"({setting}, K={draft_tokens}, {plan.samples} samples)"
    if control and control.rejected:
        blame = "its own plain decoding fails the tests: speculation is not to blame"
        found = f"{spec.rejected}; {blame}" if spec.rejected else f"{blame}; {control.rejected}"
        return conclude(status=Status.ERROR, message=f"{found} {where}", evidence=evidence)
    if spec.rejected:
        likely, named = _named(subject, plan, sample, spec)
        return conclude(
            status=Status.FAIL,
            message=f"{spec.rejected} {where}",
            evidence=evidence,
            likely_fault=likely,
            fault_class=named,
        )
    if not plan.visible:
        return conclude(
            status=Status.INCONCLUSIVE,
            message=f"{evidence['samples']} samples cannot show any known fault",
            evidence=evidence,
        )
    return conclude(
        status=Status.PASS,
        message=f"{len(spec.members)} tables of {plan.samples} samples fit the target "
        f"({setting}, K={draft_tokens})",
        evidence=evidence,
        ruled_out=f"(power {POWER}) " + "; ".join([*plan.visible, *spec.shares(plan)]),
    )


@dataclass(frozen=True)
class _Arm:
    """What the tests say of one arm.

    Attributes
    ----------
    rejected : str
        Which test rejects, in words; empty for none.
    failing : list of Member
        Those that a test rejects, the clearest first; none where the support check does.
    """

    members: list[Member]
    rejected: str
    failing: list[Member] = field(default_factory=list)

    @classmethod
    def of(
        cls, plan: Plan, sample: Sample, starts: Ints | None, subject: Subject, budget: Budget
    ) -> _Arm:
        outputs = [*sample.outputs, *sample.longer]
        if outside := impossible(subject.pair, plan.request, outputs):
            return cls([], outside)
        found = list(_members(plan, sample, starts, subject, budget))
        results = {name: (r, m) for m in found for name, r in m.results().items()}
        names, words = rejected({n: result for n, (result, _) in results.items()}, plan.alpha)
        failing = {results[name][1].name: results[name][1] for name in names}
        return cls(found, words, list(failing.values()))

    def evidence(self, plan: Plan) -> dict[str, object]:
        """What was found, in JSON types."""
        tables = {m.name: m.evidence(plan.each, POWER) for m in self.members}
        return {"rejected": self.rejected, "members": tables}

    def shares(self, plan: Plan) -> Iterator[str]:
        """Smallest share that each member would have shown, in words."""
        for member in self.members:
            share = member.smallest(plan.each, POWER)
            if not math.isinf(share):
                yield f"{share:.1%} of {member.share} ({member.name})"


def _members(
    plan: Plan, sample: Sample, starts: Ints | None, subject: Subject, budget: Budget
) -> Iterator[Member]:
    vocab, lag = subject.pair.vocab_size, plan.request.draft_tokens + 1
    yield from members.of_outputs(sample, plan.laws, vocab)
    yield from members.of_lag(sample, plan.laws, lag, vocab)
    if starts is not None:
        yield from members.of_rounds(sample, starts, subject.pair, plan.request, budget.seed)
    yield from members.of_calls(sample.calls, plan.laws.first)


def rejected(tests: Mapping[str, chi_square.Result], alpha: float) -> tuple[list[str], str]:
    """The tests that Holm rejects, the clearest first, and that one in words; "" for none."""
    names = chi_square.holm({name: test.p_value for name, test in tests.items()}, alpha)
    if not names:
        return [], ""
    test = tests[names[0]]
    return names, (
        f"output does not follow the target's law: {names[0]} {test.statistic:.0f} on "
        f"{test.degrees} degrees of freedom, p = {test.p_value:.2g}"
    )


def impossible(pair: ModelPair, request: Request, outputs: Sequence[Ints]) -> str:
    """Tokens of probability zero, in words; at the border of a filter noise is no proof."""
    distinct = sorted({tuple(output.tolist()) for output in outputs})
    answers = [oracle.Answer(request, tokens) for tokens in distinct]
    found = 0
    for rows in oracle.score(pair, answers, draft=False):
        assert rows.near is not None
        found += int(((rows.here.p.squeeze(1) == 0) & ~rows.near).sum())
    if not found:
        return ""
    return f"tokens of probability zero were emitted ({found} in {len(distinct)} different outputs)"


def _named(
    subject: Subject, plan: Plan, sample: Sample, arm: _Arm
) -> tuple[str, FaultClass | None]:
    """What the members are for that reject, or the named fault that makes the tokens likeliest.

    The former only if the first tokens are right: wrong ones show in pairs of them as well.
    """
    if arm.failing and all(member.hint for member in arm.failing):
        return "; or ".join(member.hint for member in arm.failing), arm.failing[0].kind
    named = (*NAMED, *of_sampling(plan.request.sampling))
    process = EProcess(named, q=True, tilt=False, alpha=plan.alpha)
    for rows in oracle.score(subject.pair, list(_answers(plan.request, sample))):
        process.update(rows)
    decision = process.decision()
    if not decision.impossible and decision.expert_log_wealth < CONVINCING:
        return "", None
    return naming.named(process)


def _answers(request: Request, sample: Sample) -> Iterator[oracle.Answer]:
    """All outputs, with the places of their tokens where rounds are reported."""
    for row, tokens in enumerate(sample.longer.tolist()):
        labels = places(tokens, sample.rounds[row]) if sample.rounds is not None else {}
        yield oracle.Answer(request, tokens, labels=labels)
    for tokens in sample.outputs[len(sample.longer) :].tolist():
        yield oracle.Answer(request, tokens)
