"""Sampled output follows the target's law: an e-process on every token of many generations.

The decoder's speculative and plain arms answer the same requests in turn, and both are held to the
oracle. The plain arm is the control: if it fails, the oracle does not describe this engine, and it
is the comparison of the two arms that says whether speculation changes anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.bench.tasks import TASKS
from harness.checks.arms import CONFIDENCE_ALPHA, TwoArms
from harness.checks.budget import Budget
from harness.checks.naming import named
from harness.checks.places import NAMES
from harness.checks.reach import POWER
from harness.checks.subject import Subject, check
from harness.contract import Sampling
from harness.stats.eprocess import Decision
from harness.verdict import Status, Verdict

NAME = "distribution.evidence"
MOST_LABELS = 9  # of a group that are shown

SETTINGS: Mapping[str, Sampling] = {
    "T=1": Sampling(temperature=1.0),
    "T=0.7 top_k=20 top_p=0.9": Sampling(temperature=0.7, top_k=20, top_p=0.9),
    "T=1.4": Sampling(temperature=1.4),
    "T=1 min_p=0.1": Sampling(temperature=1.0, min_p=0.1),
}


@check(NAME, "sampling")
def evidence(subject: Subject, budget: Budget, setting: str) -> Verdict:
    """Every token of many generations against the oracle, with the plain arm as control."""
    arms = TwoArms(subject, budget, SETTINGS[setting])
    for request in arms.requests(speculate=True):
        subject.require(*request.capabilities())
    arms.run()
    return conclusion(arms, setting)


def conclusion(arms: TwoArms, setting: str) -> Verdict:
    """The verdict that the evidence allows."""
    decision, control = arms.decision(), arms.plain.process.decision()
    about = f"({setting}, {decision.tokens} tokens in {arms.batches} batches)"
    found: dict[str, object] = {
        "alpha": arms.budget.alpha,
        "tokens": decision.tokens,
        "log10_wealth": decision.log10_wealth,
        "slack": arms.slack_in_words(),
        "near_the_border_of_a_filter": arms.speculative.process.near,
    }
    if arms.has_plain:
        found["plain_arm"] = {
            "tokens": control.tokens,
            "log10_wealth": control.log10_wealth,
        }
        found["between_the_arms_log10_wealth"] = round(arms.between.log_wealth / math.log(10), 2)
    if arms.has_plain and control.rejected and not arms.arms_differ:
        return Verdict(
            check=NAME,
            status=Status.ERROR,
            message=(
                f"its own plain decoding does not follow the target's law: {reason(control)}, and "
                f"nothing tells its two arms apart: speculation is not to blame {about}"
            ),
            likely_fault=f"of both arms: {control.expert.says}",
            fault_class=control.expert.kind,
            evidence=found,
        )
    likely, kind = named(arms.speculative.process)
    if arms.rejected:
        message = f"tokens do not follow the target's law: {reason(decision)} {about}"
        if not decision.rejected:
            message = (
                "speculation changes the law: its tokens and those of its plain decoding differ, "
                f"10^{arms.between.peak / math.log(10):.1f} to 1 {about}"
            )
        if arms.has_plain and control.rejected:
            message += "; its plain decoding does not follow the target's law either"
        return Verdict(
            check=NAME,
            status=Status.FAIL,
            message=message,
            likely_fault=likely,
            fault_class=kind,
            evidence=found | {"where": where(arms)},
        )
    if decision.rejected:
        return Verdict(
            check=NAME,
            status=Status.INCONCLUSIVE,
            message=(
                f"tokens do not follow the oracle's law: {reason(decision)}, but too few tell its "
                f"two arms apart, and the oracle may not be quite this engine's {about}"
            ),
            likely_fault=likely,
            evidence=found,
        )
    visible = arms.reach.visible()
    said = [str(c) for c in arms.certificates if arms.knows_draft and c.says_something]
    if not arms.reach.says_something:
        return Verdict(
            check=NAME,
            status=Status.INCONCLUSIVE,
            message=f"too few tokens to show even a gross fault {about}",
            evidence=found,
        )
    return Verdict(
        check=NAME,
        status=Status.PASS,
        message=f"every token is accounted for by the target's law {about}",
        ruled_out="; ".join(
            [f"(confidence {1 - CONFIDENCE_ALPHA:g}) {text}" for text in said]
            + [f"(power {POWER:g}) {text}" for text in visible]
        ),
        evidence=found,
    )


def reason(decision: Decision) -> str:
    """What was seen, in words."""
    if decision.impossible:
        return f"{decision.impossible} tokens of probability zero were emitted"
    return f"the evidence reached 10^{decision.log_wealth / math.log(10):.1f} to 1" + (
        f", the error level after {decision.crossed_at} tokens" if decision.crossed_at else ""
    )


def where(arms: TwoArms) -> dict[str, dict[str, str]]:
    """By group: tokens and the leading expert's evidence in them, of the labels that have most."""
    names = {**NAMES, "task": dict(enumerate(TASKS))}
    found = {}
    for name, labels in arms.speculative.process.where().items():
        telling = sorted(labels, key=lambda label: -abs(labels[label][1]))[:MOST_LABELS]
        found[name] = {
            str(names.get(name, {}).get(label, label)): (
                f"{labels[label][0]} tokens, 10^{labels[label][1] / math.log(10):.1f}"
            )
            for label in sorted(telling)
        }
    return found
