"""``python -m harness.bench.scale``: what it counts, and how it says it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.bench import scale


def test_a_cost_is_of_the_tokens_that_were_asked_for() -> None:
    found = scale.cost(320)
    assert (found.tokens, found.generations) == (320, 10)
    assert found.generating > 0
    assert found.scoring > 0
    assert found.most >= found.before > 0


def test_over_acceptance_is_found_later_at_a_smaller_error_level() -> None:
    (loose,), (strict,) = (scale.time_to_verdict(alpha, 1).after for alpha in (1e-2, 1e-6))
    assert loose is not None
    assert strict is not None
    assert loose < strict


def test_gain_is_the_ratio_of_geometric_means() -> None:
    turns = scale.Workers(what="Ray", command="", one=[8.0, 2.0], two=[1.0, 4.0])
    assert turns.gain == pytest.approx(2)


def test_a_fault_that_was_not_found_counts_as_late() -> None:
    said = scale.render(scale.Scale(found=[scale.Found(alpha=1e-4, after=[None, 2000, 3000])]))
    assert said.splitlines()[-1].split() == ["0.0001", "3,000", "2,000", "not", "found", "3"]


def test_tables_that_were_not_asked_for_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    scale.main(["--only", "alpha", "--seeds", "1"])
    said = capsys.readouterr().out
    assert "over-acceptance by 1.1" in said
    assert "generations" not in said


def test_figures_are_plain_json() -> None:
    found = scale.Scale(found=[scale.Found(alpha=1e-4, after=[None])])
    assert msgspec.json.decode(msgspec.json.encode(found), type=scale.Scale) == found


def test_where_nothing_can_be_written_it_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert scale.main(["--json", str(tmp_path / "file" / "scale.json")]) == 2
    assert "cannot write --json" in capsys.readouterr().err
