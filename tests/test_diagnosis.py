"""The class of fault that most failing checks name."""

from __future__ import annotations

from harness.diagnosis import diagnose
from harness.verdict import FaultClass, Status, Verdict


def verdict(check: str, kind: FaultClass | None, status: Status = Status.FAIL) -> Verdict:
    return Verdict(check=check, status=status, message="", fault_class=kind)


def test_each_check_has_one_vote() -> None:
    found = [verdict("a.a", FaultClass.END)] * 3
    found += [verdict("b.b", FaultClass.CACHE), verdict("c.c", FaultClass.CACHE, Status.ERROR)]
    assert diagnose(found) == (FaultClass.CACHE, ["b.b", "c.c"])


def test_of_two_classes_with_as_many_votes_the_first_wins() -> None:
    found = [verdict("a.a", FaultClass.END), verdict("b.b", FaultClass.CACHE)]
    assert diagnose(found) == (FaultClass.END, ["a.a"])


def test_what_did_not_fail_has_no_vote() -> None:
    passed = verdict("a.a", FaultClass.END, Status.PASS)
    assert diagnose([passed, verdict("b.b", None)]) == (None, [])


def test_positions_that_account_for_every_answer_outweigh_other_checks() -> None:
    found = [verdict(f"cache.{i}", FaultClass.CACHE) for i in "abc"]
    found.append(verdict("greedy.positions", FaultClass.POSITIONS))
    assert diagnose(found) == (FaultClass.POSITIONS, ["greedy.positions"])


def test_greedy_tokens_wrong_in_both_roles_speak_of_the_argmax() -> None:
    after_rejection = [verdict(f"greedy.{i}", FaultClass.RESIDUAL) for i in "ab"]
    bonus = verdict("stopping.eos", FaultClass.BONUS)
    assert diagnose([*after_rejection, bonus])[0] is FaultClass.GREEDY
    sampled = verdict("distribution.family", FaultClass.BONUS)
    assert diagnose([*after_rejection, sampled])[0] is FaultClass.RESIDUAL
