"""What fault the evidence against a decoder speaks of: a diagnosis, and no proof.

The experts' laws are those of tokens that were drafted, so where rounds are reported it is the
drafted tokens that name the fault: a token after a fully accepted block follows the target
whatever the rule of acceptance. Unless these alone are wrong: then that is the fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from harness.checks.places import ROLE
from harness.stats.eprocess import LEAD, EProcess
from harness.verdict import FaultClass

DRAFTED, BONUS = 0, 1  # labels of ``ROLE``
CLEAR = math.log(1e4)  # times that an expert makes tokens likelier which are surely wrong


def named(process: EProcess) -> tuple[str, FaultClass | None]:
    """The likeliest fault in words, with how much likelier it makes the tokens, and its kind.

    The kind is that of the likeliest expert that has one, None where none of those is ``CLEAR``.
    """
    bonus, drafted = (_won(process, label) for label in (BONUS, DRAFTED))
    bonus_alone = float(bonus.max()) >= CLEAR > float(drafted.max())
    wealths = bonus if bonus_alone else drafted
    if wealths.max() < CLEAR:
        wealths = process.log_wealths
    # Impossible tokens first: what does not explain them is out, whatever it has won.
    scores = wealths + 1e6 * (process.explained - process.explained.max())
    order = scores.argsort(descending=True).tolist()
    says = _in_words(process, wealths, order)
    if bonus_alone:
        return f"{says}, of the tokens after a fully accepted block", FaultClass.BONUS
    enough = -math.inf if process.impossible else CLEAR
    # Of experts that are as likely the one defined first: they go from the common to the rare.
    alike = sorted(j for j in order if scores[j] >= scores.max() - LEAD)
    kinds = (process.experts[j].kind for j in [*alike, *order] if wealths[j] >= enough)
    return says, next((kind for kind in kinds if kind), None)


def _won(process: EProcess, label: int) -> Tensor:
    """Log wealths [J] of the tokens in one place of their round; -inf where there are none."""
    sums = process.groups.get(ROLE, {}).get(label)
    return torch.full_like(process.log_wealths, -math.inf) if sums is None else sums[:-1]


def _in_words(process: EProcess, wealths: Tensor, order: Sequence[int]) -> str:
    """The first expert's fault, and whether those of other families are far behind."""
    best, won = process.experts[order[0]], float(wealths[order[0]])
    others = [float(wealths[j]) for j in order if process.experts[j].family != best.family]
    unsure = "; others are nearly as likely" if won - max(others, default=-math.inf) < LEAD else ""
    if process.impossible:
        return f"{best.says} (which allows those tokens{unsure})"
    times = won / math.log(10)
    return f"{best.says} (10^{times:.0f} times likelier than the target's law{unsure})"
