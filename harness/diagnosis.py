"""What the failing verdicts of a run have in common: the class of fault that most checks name."""

from __future__ import annotations

from collections.abc import Sequence

from harness.verdict import FaultClass, Status, Verdict

# Named only where one wrong way of counting accounts for every answer: that outweighs any number
# of checks that fail beside it.
PROVEN = ("greedy.positions", FaultClass.POSITIONS)


def diagnose(verdicts: Sequence[Verdict]) -> tuple[FaultClass | None, list[str]]:
    """The likeliest class of fault, and the checks that name it.

    Each check has one vote, whatever the number of its items. Of classes with as many votes the
    one that was named first wins: the suites go from the single token to the whole request. Where
    greedy tokens are wrong both after a rejection and after a block that was accepted whole, it is
    neither of these rules, but the argmax that they share.

    Returns
    -------
    FaultClass or None
        None where no failing verdict names a class.
    list of str
        Checks, in the order of the verdicts.
    """
    votes: dict[FaultClass, list[str]] = {}
    for verdict in verdicts:
        if verdict.status in (Status.FAIL, Status.ERROR) and (kind := verdict.fault_class):
            if (verdict.check, kind) == PROVEN:
                return kind, [verdict.check]
            checks = votes.setdefault(kind, [])
            if verdict.check not in checks:
                checks.append(verdict.check)
    if not votes:
        return None, []
    kind, checks = max(votes.items(), key=lambda vote: len(vote[1]))
    either = (FaultClass.RESIDUAL, FaultClass.BONUS)
    if kind in either and all(any(map(_is_greedy, votes.get(k, ()))) for k in either):
        return FaultClass.GREEDY, list(dict.fromkeys(votes[either[0]] + votes[either[1]]))
    return kind, checks


def _is_greedy(check: str) -> bool:
    """Whether a check that names a token's role does so for greedy requests."""
    return not check.startswith(("distribution.", "exact_law.", "sampling_params.law"))
