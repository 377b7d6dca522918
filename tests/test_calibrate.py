"""``python -m harness.bench.calibrate``: how runs are counted; what they come to is a machine's."""

from __future__ import annotations

import pytest

from harness.bench.calibrate import Known, enough, main, render, right
from harness.bench.estimate import Estimate
from tests.records import one_line
from tests.timed_rows import Scripted, says

HOLDS, BELOW = Estimate(1.0, 0.95, 1.05), Estimate(0.83, 0.8, 0.87)


def test_a_run_is_right_if_its_interval_says_what_is_known() -> None:
    assert right(0.0, [HOLDS, BELOW, Estimate(1.1, 1.02, 1.2)]) == 1
    assert right(0.2, [HOLDS, BELOW, Estimate(1.1, 1.02, 1.2)]) == 1
    assert right(0.2, [Estimate(0.9)]) == 1  # a single prompt has no interval


@pytest.mark.parametrize(
    ("count", "runs", "found"), [(19, 20, True), (18, 20, False), (3, 3, True)]
)
def test_nineteen_of_twenty_are_enough(count: int, runs: int, found: bool) -> None:
    assert enough(count, runs) is found


def test_what_is_printed_says_what_to_expect_of_it() -> None:
    text = render({0.0: [HOLDS] * 20, 0.2: [BELOW] * 19 + [HOLDS]}, 20)
    assert "holds 1.00" in text
    assert "0.833x" in text
    assert "needed: 19." in text
    assert "in 74% of attempts" in text  # 20 * 0.95^19 * 0.05 + 0.95^20


def test_the_known_decoder_never_speculates() -> None:
    inner = Scripted(says(5), RuntimeError("it speculated"))
    known = Known(inner, 0.2)
    assert known.capabilities == {"greedy", "plain"}
    from harness.contract import Request

    (answer,) = known.generate([Request(prompt=(1,), max_new_tokens=1)])
    assert answer == says(5)
    assert [request.speculate for request in inner.seen] == [False]


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", "0"]) == 2
    assert "--runs is 0: ask for at least 1" in one_line(capsys.readouterr().err)
    assert main(["--pair", "nothing"]) == 2
    assert "unknown pair 'nothing'" in one_line(capsys.readouterr().err)
