"""What the failing verdicts of a run have in common: the class of fault that most checks name."""

from __future__ import annotations

from collections.abc import Sequence

from harness.verdict import FaultClass, Status, Verdict


def diagnose(verdicts: Sequence[Verdict]) -> tuple[FaultClass | None, list[str]]:
    """The likeliest class of fault, and the checks that name it.

    Each check has one vote, whatever the number of its items. Of classes with as many votes the
    one that was named first wins: the suites go from the single token to the whole request.

    Returns
    -------
    FaultClass or None
        None where no failing verdict names a class.
    list of str
        Checks, in the order of the verdicts.
    """
    votes: dict[FaultClass, list[str]] = {}
    for verdict in verdicts:
        if verdict.status in (Status.FAIL, Status.ERROR) and verdict.fault_class:
            checks = votes.setdefault(verdict.fault_class, [])
            if verdict.check not in checks:
                checks.append(verdict.check)
    if not votes:
        return None, []
    return max(votes.items(), key=lambda vote: len(vote[1]))
