"""What kind of fault the evidence against a decoder speaks of.

That of the leading expert, unless it is the place of the evidence that tells. It is a diagnosis
and no proof.
"""

from __future__ import annotations

import math

from harness.checks.places import ROLE
from harness.stats.eprocess import Decision, EProcess
from harness.verdict import FaultClass

DRAFTED, BONUS = 0, 1  # labels of ``ROLE``
CLEAR = math.log(1e4)  # nats that some expert must win in a group, for its tokens to be wrong


def likely(decision: Decision) -> str:
    """The leading expert's fault, with how much likelier it makes the tokens."""
    times = decision.expert_log_wealth / math.log(10)
    unsure = "" if decision.settled else "; others are nearly as likely"
    if decision.impossible:
        return f"{decision.expert.says} (which allows those tokens{unsure})"
    return f"{decision.expert.says} (10^{times:.0f} times likelier than the target's law{unsure})"


def fault_class(process: EProcess, decision: Decision) -> FaultClass | None:
    """The kind of fault, None where the evidence does not tell."""
    return FaultClass.BONUS if _bonus_alone(process) else decision.expert.kind


def _bonus_alone(process: EProcess) -> bool:
    """Whether tokens after fully accepted blocks are wrong, and drafted ones are not."""
    won = {label: float(sums[:-1].max()) for label, sums in process.groups.get(ROLE, {}).items()}
    return won.get(BONUS, 0.0) >= CLEAR > won.get(DRAFTED, math.inf)
