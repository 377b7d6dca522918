"""Advice: from what was measured, and from the cost model where it expects more of another K."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.bench.cost_model import CostModel
from harness.bench.estimate import Estimate
from harness.bench.summary import Summary, summarise
from harness.record import Writer
from harness.report import advice
from harness.report.__main__ import main
from harness.report.advice import STOP
from tests.records import header, made, one_line
from tests.test_cost_model import even
from tests.test_costs import timed
from tests.timed_rows import row

GOOD = summarise([row()], ["a"])[0]
WRONG = summarise([row(tokens=(1, 2, 3, 9), fault="far")], ["a"])[0]
SAMPLED = summarise([row(identical=None)], ["a"])[0]


def at(value: float, low: float, high: float, of: Summary = GOOD) -> Summary:
    return replace(of, speedup=Estimate(value, low, high))


def slow(k: int = 4) -> CostModel:
    """Drafts that cost as much as they could save: every round loses."""
    return even(0.3, c=0.9, k=k)


def test_what_pays_and_cannot_be_bettered_is_kept() -> None:
    model = even(0.8, c=0.1)
    assert advice.advice({model.best(): at(1.8, 1.6, 2.0)}, model) == (
        f"K={model.best()}, 1.80x [1.60, 2.00]"
    )


def test_a_better_k_is_predicted_and_to_be_measured() -> None:
    model = even(0.8, c=0.1, k=2)
    best = model.best()
    reached = 1.5 * model.speedup(best) / model.speedup(2)
    assert advice.advice({2: at(1.5, 1.4, 1.6)}, model) == (
        f"K={best} predicted, {reached:.2f}x (beyond the measured positions): measure it "
        "(measured: K=2, 1.50x [1.40, 1.60])"
    )


def test_a_shorter_block_is_no_extrapolation() -> None:
    said = advice.advice({8: at(0.9, 0.8, 1.1)}, even(0.6, c=0.2, k=8))
    assert said.startswith("K=2 predicted, ")
    assert "beyond" not in said


def test_who_loses_and_would_lose_at_any_k_does_not_speculate() -> None:
    assert advice.advice({4: at(0.3, 0.2, 0.4)}, slow()) == f"{STOP}, 0.30x [0.20, 0.40] at K=4"


def test_who_loses_here_but_not_elsewhere_is_told_both() -> None:
    said = advice.advice({8: at(0.8, 0.75, 0.9)}, even(0.6, c=0.3, k=8))
    assert said.startswith(f"{STOP}, 0.80x [0.75, 0.90] at K=8; K=1 predicted, ")


def test_the_best_prediction_below_one_decides_where_the_interval_does_not() -> None:
    said = advice.advice({1: at(0.95, 0.85, 1.05)}, slow(k=1))
    assert said == f"{STOP}, 0.95x [0.85, 1.05] at K=1"


def test_without_a_model_the_interval_decides() -> None:
    assert advice.advice({3: at(0.8, 0.7, 0.9)}, None).startswith(STOP)
    assert advice.advice({3: at(1.1, 0.9, 1.3)}, None) == "K=3, 1.10x [0.90, 1.30]: no gain shown"
    assert advice.advice({3: at(1.2, 1.1, 1.3)}, None) == "K=3, 1.20x [1.10, 1.30]"


def test_of_several_k_the_fastest_lossless_one_is_meant() -> None:
    by_k = {1: at(1.2, 1.1, 1.3), 3: at(1.5, 1.4, 1.6), 5: at(1.9, 1.8, 2.0, WRONG)}
    assert advice.advice(by_k, None) == "K=3, 1.50x [1.40, 1.60]"


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        (at(3.0, 2.9, 3.1, WRONG), "no advice: not lossless"),
        (at(3.0, 2.9, 3.1, SAMPLED), "no advice: losslessness was not shown"),
        (replace(GOOD, speedup=None), "no advice: nothing was timed"),
    ],
)
def test_no_advice_without_losslessness_or_times(summary: Summary, words: str) -> None:
    assert advice.advice({3: summary}, even(0.8)) == words


def lines(*records: Any) -> dict[str, list[str]]:
    return {notes.title: notes.lines for s in advice.sections(records) for notes in s.notes}


def test_records_that_differ_in_k_alone_are_one_advice() -> None:
    options = {"temperature": 0.0, "load_average": 0.5}
    fast = [timed(prompt=f"p{i}", plain_seconds=4.0) for i in range(3)]
    plain = [timed(prompt=f"p{i}") for i in range(3)]
    records = [
        made(rows, decoders=["a"], options=options | {"draft_tokens": k, "load_average": k})
        for k, rows in ((1, plain), (3, fast))
    ]
    (section,) = advice.sections(records)
    assert section.facts[1:] == [
        ("decoding", "greedy, one request at a time"),
        ("measured at", "K = 1, 3"),
    ]
    assert "measured: K=3, 2.67x" in lines(*records)["a"][0]
    hot = made(fast, decoders=["a"], options={"temperature": 1.0, "draft_tokens": 3})
    assert len(advice.sections([*records, hot])) == 2


def test_a_record_without_measurements_has_no_advice() -> None:
    assert lines(made([]))["Result"] == [advice.NOTHING]


def test_the_option_puts_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Writer(tmp_path / "r.jsonl", header(decoders=["a"])) as writer:
        writer.add(timed())
    arguments = ["--from", str(tmp_path / "r.jsonl")]
    assert main(["--advise", *arguments, "--format", "terminal,html"]) == 0
    assert capsys.readouterr().out.startswith("Advice: tiny\n")
    assert main(arguments) == 0
    assert "Advice" not in capsys.readouterr().out


def test_advice_is_of_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--advise", "--conformance"]) == 2
    assert "give them to --from" in one_line(capsys.readouterr().err)
