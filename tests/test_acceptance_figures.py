"""Acceptance by place in the block, on rounds whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from harness.bench import acceptance
from harness.bench.acceptance import acceptances
from harness.bench.estimate import MANY
from harness.record import GenerationRow, read
from harness.report.__main__ import main
from harness.report.render import render
from tests.records import made
from tests.timed_rows import row


def rounds(name: str, drafted: list[int], accepted: list[int], **rest: object) -> GenerationRow:
    return row(prompt=name, drafted=drafted, accepted=accepted, **rest)  # type: ignore[arg-type]


def drawn(alpha: float, prompts: int, count: int = 20, k: int = 4) -> list[GenerationRow]:
    """Rounds of independent drafts."""
    generator = np.random.default_rng(0)
    found = []
    for prompt in range(prompts):
        runs = np.minimum(generator.geometric(1 - alpha, count) - 1, k)
        found.append(rounds(f"p{prompt}", [k] * count, runs.tolist()))
    return found


def test_places_are_counted_as_by_hand() -> None:
    rows = [rounds("p1", [3, 3, 1], [3, 1, 0]), rounds("p2", [2, 0], [2, 0])]
    (found,) = acceptances(rows, ["a"])
    assert [p.place for p in found.positions] == [1, 2, 3]
    assert [p.tried for p in found.positions] == [4, 3, 1]  # the third of p2 was never drafted
    assert [p.conditional.value for p in found.positions] == pytest.approx([3 / 4, 2 / 3, 1])
    assert [p.joint.value for p in found.positions] == pytest.approx([3 / 5, 2 / 5, 1 / 5])
    assert [p.drafted for p in found.positions] == pytest.approx([4 / 5, 3 / 5, 2 / 5])
    assert found.rounds == 5
    assert found.histogram == {0: 2, 1: 1, 2: 1, 3: 1}
    assert found.length_over_rounds == pytest.approx(11 / 5)
    assert found.length_over_requests == pytest.approx((7 / 3 + 2) / 2)


def test_mean_accepted_length_is_one_more_than_the_joint_rates() -> None:
    (found,) = acceptances(drawn(0.6, 9), ["a"])
    assert found.length_over_rounds == pytest.approx(
        1 + sum(p.joint.value for p in found.positions)
    )


def test_independent_drafts_are_accepted_alike_at_all_places() -> None:
    (found,) = acceptances(drawn(0.6, 40), ["a"])
    for place in found.positions:
        assert place.conditional.value == pytest.approx(0.6, abs=0.06)
        assert place.joint.value == pytest.approx(0.6**place.place, abs=0.05)
        assert place.conditional.low is not None
        assert place.conditional.high is not None
        assert place.conditional.low < place.conditional.value < place.conditional.high


def test_prompts_that_differ_widen_the_interval() -> None:
    alike = [rounds(f"p{i}", [1] * 20, [1] * 10 + [0] * 10) for i in range(8)]
    split = [rounds(f"p{i}", [1] * 20, [i % 2] * 20) for i in range(8)]
    (narrow,), (wide,) = acceptances(alike, ["a"]), acceptances(split, ["a"])
    inner, outer = narrow.positions[0].conditional, wide.positions[0].conditional
    assert inner.value == outer.value == 0.5
    rounds_alone = binomtest(80, 160).proportion_ci(method="exact")
    assert outer.low is not None
    assert outer.low < rounds_alone.low - 0.1  # the rounds of a prompt are not independent


def test_one_prompt_and_certain_rates_take_the_interval_of_their_rounds() -> None:
    (found,) = acceptances([rounds("p1", [1] * 9, [1] * 4 + [0] * 5)], ["a"])
    interval = binomtest(4, 9).proportion_ci(method="exact")
    assert found.positions[0].conditional.low == pytest.approx(interval.low)
    assert found.positions[0].conditional.high == pytest.approx(interval.high)
    (all_accepted,) = acceptances([rounds(f"p{i}", [2] * 5, [2] * 5) for i in range(3)], ["a"])
    certain = all_accepted.positions[1].conditional
    assert certain.value == certain.high == 1
    assert certain.low == pytest.approx(binomtest(15, 15).proportion_ci(method="exact").low)


def test_many_prompts_are_not_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn(0.5, MANY, count=5, k=2)
    (expanded,) = acceptances(rows, ["a"])
    monkeypatch.setattr(acceptance, "MANY", 2 * MANY)
    (resampled,) = acceptances(rows, ["a"])
    for one, other in zip(expanded.positions, resampled.positions, strict=True):
        assert one.conditional.low == pytest.approx(other.conditional.low, abs=0.004)
        assert one.joint.high == pytest.approx(other.joint.high, abs=0.004)


def test_theory_stands_where_a_draft_was_tried() -> None:
    overlap = [0.9, 0.5, 0.1, 0.7]
    (found,) = acceptances([rounds("p1", [2, 2], [1, 1], overlap=overlap)], ["a"])
    assert [p.theory for p in found.positions] == pytest.approx([(0.9 + 0.1) / 2, (0.5 + 0.7) / 2])
    (without,) = acceptances([rounds("p1", [2, 2], [1, 1])], ["a"])
    assert {p.theory for p in without.positions} == {None}


def test_who_drafts_nothing_or_does_not_tell_is_left_out() -> None:
    rows = [row(), rounds("p2", [0, 0], [0, 0]), rounds("p3", [1], [1], error="cut off")]
    assert acceptances(rows, ["a"]) == []


def test_greedy_drafts_are_accepted_where_both_models_say_the_same(tmp_path: Path) -> None:
    """Then theory is no mean over luck: every draft has it that way."""
    arguments = ["--pair", "tiny", "--tasks", "chat", "--prompts", "3", "--max-new-tokens", "24"]
    main([*arguments, "--decoder", "reference", "--out", str(tmp_path), "--format", "markdown"])
    record = read(tmp_path / "record.jsonl")
    (found,) = acceptances(record.generations, ["reference"])
    assert len(found.positions) == 3
    for place in found.positions:
        assert place.theory == pytest.approx(place.conditional.value)
    assert "sum min(p, q)" in (tmp_path / "report.md").read_text()


def test_drafts_of_no_model_have_no_theory(tmp_path: Path) -> None:
    arguments = ["--pair", "tiny", "--tasks", "repetitive", "--prompts", "1", "--max-new-tokens"]
    decoder = ["--decoder", "reference-ngram", "--out", str(tmp_path)]
    main([*arguments, "8", *decoder, "--format", "markdown"])
    assert [row.overlap for row in read(tmp_path / "record.jsonl").generations] == [None]


def test_tables_have_a_column_a_position() -> None:
    section = render(made([rounds("p1", [2, 2], [1, 2]), rounds("p2", [1], [1])]))
    by_position, in_a_row = section.tables[1:3]
    assert by_position.title == "Acceptance by position"
    assert in_a_row.title == "Drafts accepted in a row"
    assert by_position.columns == ["task", "decoder", "rounds", "1", "2"]
    assert by_position.rows[0][:3] == ["chat", "a", "3"]
    assert [str(cell).split()[0] for cell in by_position.rows[0][3:]] == ["100%", "50%"]
    assert [str(cell).split()[0] for cell in in_a_row.rows[0][3:]] == ["100%", "33%"]
