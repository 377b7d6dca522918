"""Which fault is named, by hand: wealths of three experts, in drafted tokens and in bonus ones."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from harness.checks.naming import named
from harness.checks.places import ROLE
from harness.stats import faults
from harness.stats.eprocess import EProcess
from harness.stats.experts import KINDS, NAMED, Expert
from harness.verdict import FaultClass

Q = frozenset({"q"})
EXPERTS = [
    Expert("leak", "from the draft", partial(faults.leak, rate=0.5), Q),
    Expert("residual", "from abs(p - q)", faults.abs_residual, Q),
    Expert("flatten", "any token", partial(faults.flatten, rate=0.5)),
]


def of(
    drafted: list[float] | None = None,
    bonus: list[float] | None = None,
    together: list[float] | None = None,
    explained: list[float] | None = None,
) -> EProcess:
    """With these log wealths, and impossible tokens that some experts explain."""
    process = EProcess(EXPERTS, q=True, tilt=False, alpha=0.01)
    groups = {0: drafted, 1: bonus}
    process.groups[ROLE] = {k: torch.tensor([*w, 9.0]) for k, w in groups.items() if w}
    process.log_wealths = torch.tensor(together or [0.0, 0.0, 0.0], dtype=torch.float64)
    if explained:
        process.explained, process.impossible = torch.tensor(explained), 7
    return process


@pytest.mark.parametrize(
    ("process", "says", "kind"),
    [
        (of(drafted=[20, 50, 0], bonus=[9, 0, 0]), "abs(p - q) (10^22", FaultClass.RESIDUAL),
        # bonus tokens are right under a wrong residual, and would name something else
        (of(drafted=[20, 50, 0], together=[60, 10, 0]), "abs(p - q)", FaultClass.RESIDUAL),
        (of(drafted=[-5, -9, -9], bonus=[30, 0, 0]), "fully accepted block", FaultClass.BONUS),
        (of(together=[30, 0, 0]), "from the draft (10^13", FaultClass.ACCEPTANCE),
        (of(drafted=[50, 51, 0]), "nearly as likely", FaultClass.ACCEPTANCE),  # as good: the first
        (of(drafted=[20, 0, 90]), "any token", FaultClass.ACCEPTANCE),  # which has no kind
        (of(drafted=[0, 0, 90]), "any token", None),
        (of(drafted=[90, 20, 0], explained=[0, 7, 0]), "which allows", FaultClass.RESIDUAL),
    ],
)
def test_by_hand(process: EProcess, says: str, kind: FaultClass | None) -> None:
    words, found = named(process)
    assert (says in words, found) == (True, kind), words


def test_every_kind_is_of_a_family() -> None:
    assert set(KINDS) - {"parameters"} == {e.family for e in NAMED} - {"flatten"}
