"""Verdicts: only a pass is a pass, and a group is as good as its worst."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from harness.verdict import Status, Verdict, worst

FULL = Verdict(
    check="greedy.identity",
    status=Status.FAIL,
    message="token 3 is 5",
    ruled_out="nothing",
    likely_fault="rows are mixed up",
    evidence={"position": 3, "ids": [1, 2]},
    repro="import x\nprint(x)",
)


@pytest.mark.parametrize("status", Status)
def test_only_pass_is_a_pass(status: Status) -> None:
    assert Verdict(check="c", status=status, message="m").passed == (status is Status.PASS)


def test_a_verdict_in_words() -> None:
    assert str(FULL).splitlines() == [
        "FAIL greedy.identity: token 3 is 5",
        "  ruled out: nothing",
        "  likely fault: rows are mixed up",
        "  position: 3",
        "  ids: [1, 2]",
        "  reproduce:",
        "    import x",
        "    print(x)",
    ]
    assert str(Verdict(check="c", status=Status.PASS, message="m")) == "PASS c: m"


def test_a_verdict_survives_the_way_from_a_worker() -> None:
    assert msgspec.convert(msgspec.to_builtins(FULL), Verdict) == FULL
    assert msgspec.json.decode(msgspec.json.encode(FULL), type=Verdict) == FULL


def test_the_worst_describes_a_group() -> None:
    order = [Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.UNSUPPORTED, Status.PASS]
    assert set(order) == set(Status)
    for bad, good in itertools.combinations(order, 2):
        assert worst([good, bad, good]) is bad
    assert worst([Status.PASS, Status.PASS]) is Status.PASS


def test_nothing_at_all_is_no_pass() -> None:
    assert worst([]) is Status.INCONCLUSIVE
