"""The kill matrix and the commands that print it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import msgspec
import pytest

from harness import gallery, items, matrix, mutants
from harness.checks.subject import NAMED
from harness.matrix import Cell, Row
from harness.verdict import FaultClass, Status

SMOKE = items.items("smoke")


def cell(decoder: str, status: Status, item: str = "greedy.identity[tiny]") -> Cell:
    check = item.partition("[")[0]
    return Cell(decoder=decoder, item=item, check=check, status=status, seconds=1.0)


@pytest.mark.parametrize("profile", ["smoke", "ci"])
def test_items_are_what_pytest_collects(profile: str) -> None:
    options = ["suites", "--collect-only", "-q", "--profile", profile]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=Path(mutants.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if "::test_" in line]
    collected = [line.removeprefix("suites/test_") for line in lines]
    named = [str(item).replace(".", ".py::test_", 1) for item in items.items(profile)]
    assert sorted(collected) == sorted(named)


def test_an_item_runs_its_check() -> None:
    (right,) = matrix.run(Row("reference", ["smoke.wired[tiny]"], seed=3))
    assert (right.check, right.status, right.kills) == ("smoke.wired", Status.PASS, False)


def test_patterns_name_whole_words() -> None:
    (found,) = [item for item in SMOKE if str(item) == "randomness.seed[tiny]"]
    for pattern in ("randomness", "randomness.seed", "randomness.seed[tiny]"):
        assert matrix.matches(found, [pattern])
    for pattern in ("random", "randomness.se", "randomness.seed[tin"):
        assert not matrix.matches(found, [pattern])


def test_a_row_ends_at_the_first_check_that_kills() -> None:
    names = ["smoke.wired[tiny]", "robustness.bad_input[tiny]"]
    mutant = "reference_impl.mutants:answers_nothing"
    assert len(matrix.run(Row(mutant, names, until_killed=True))) == 1
    assert len(matrix.run(Row(mutant, names))) == 2


def test_a_check_that_raises_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(items.Item, "run", raising)
    names = ["smoke.wired[tiny]", "robustness.bad_input[tiny]"]
    cells = matrix.run(Row("reference_impl.mutants:answers_nothing", names, until_killed=True))
    assert [cell.status for cell in cells] == [Status.INCONCLUSIVE] * 2
    assert "raised IndexError: out of range" in mutants.wrong(cells)


def test_a_survivor_and_a_killed_control_are_told() -> None:
    alive = cell("reference_impl.mutants:accept_all", Status.PASS)
    dead = cell("reference_impl.mutants:accept_all", Status.ERROR)
    wronged = cell("reference_impl.controls:point_mass", Status.FAIL)
    assert mutants.wrong([alive]) == "mutant accept_all survives"
    assert mutants.wrong([alive, dead]) == ""
    assert "control point_mass is killed by greedy.identity[tiny]" in mutants.wrong([wronged])
    assert "mutant accept_all survives" in mutants.render([[alive]], "simple")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["acept_all"], "unknown mutant or control 'acept_all': near are accept_all"),
        (["--checks", "greedy.identty"], "unknown check 'greedy.identty': near are greedy.iden"),
        (["--json", "/dev/null/matrix.json"], "cannot write --json"),
        (["--resume"], "--resume needs --json FILE"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, table = tmp_path / "matrix.json", tmp_path / "matrix.md"
    names = ["answers_nothing", "near_ties", "--checks", "smoke.wired"]
    files = ["--json", str(written), "--markdown", str(table)]
    assert mutants.main([*names, *files]) == 0
    assert "nothing survives" in capsys.readouterr().out
    assert "| answers_nothing | smoke.wired[tiny]" in table.read_text()
    cells = json.loads(written.read_text())["cells"]
    assert [c["status"] for c in cells] == ["ERROR", "PASS"]
    assert gallery.seen(written) == {"answers_nothing": ["smoke.wired"], "near_ties": []}
    assert mutants.main(["no_rollback", "--checks", "smoke.wired", "--jobs", "2"]) == 1


def test_rows_that_are_there_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "matrix.json"
    asked: list[str] = []

    def run_all(rows: Sequence[Row], executor: Executor) -> Iterator[list[Cell]]:
        asked.extend(row.decoder.partition(":")[2] for row in rows)
        for row in rows:
            yield [cell(row.decoder, Status.FAIL, item) for item in row.items]

    monkeypatch.setattr(mutants.matrix, "run_all", run_all)
    again = ["--checks", "smoke", "--full", "--json", str(file), "--resume"]
    mutants.main(["accept_all", *again])
    mutants.main(["accept_all", "over_accept", *again])
    assert asked == ["accept_all", "over_accept"]
    assert set(gallery.seen(file)) == {"accept_all", "over_accept"}
    mutants.main(["accept_all", "--full", "--json", str(file), "--resume"])  # more items
    assert asked == ["accept_all", "over_accept", "accept_all"]


def test_the_gallery_names_every_mutant() -> None:
    text = gallery.render({"accept_all": ["greedy.identity", "batching.rows"]})
    assert all(f"`{name}`" in text for name in mutants.WRONG)
    (row,) = [line for line in text.splitlines() if line.startswith("| `accept_all`")]
    assert row.rstrip("| ").endswith("batching.rows")
    assert FaultClass.ACCEPTANCE.value.capitalize() in text


def test_four_faults_in_five_are_named() -> None:
    """By all failing checks of the full matrix, as committed, in the order of the suites."""
    rows: dict[str, list[Cell]] = {}
    for found in msgspec.json.decode(gallery.MATRIX.read_bytes())["cells"]:
        rows.setdefault(found["decoder"], []).append(msgspec.convert(found, Cell))
    assert {name.partition(":")[2] for name in rows} == {*mutants.WRONG, *mutants.RIGHT}
    assert not [problem for row in rows.values() if (problem := mutants.wrong(row))]
    right, total = mutants.named_right(list(rows.values())).rpartition(" ")[2].split("/")
    assert int(total) == len(mutants.WRONG)
    assert int(right) >= 0.8 * int(total)


def test_a_check_names_what_only_it_kills() -> None:
    """In its docstring; by the full matrix, as committed."""
    alone = gallery.killed_alone(gallery.MATRIX)
    for name in dict.fromkeys(item.check for item in SMOKE):
        words = " ".join(str(NAMED[name].__doc__).split())
        told = re.findall(r"Kills alone: ([^.]*)\.", words)
        assert told == ([", ".join(alone[name])] if name in alone else []), name


def test_the_page_of_faults_is_what_the_registry_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert gallery.main([]) == 0
    page = Path(gallery.__file__).parent.parent / "docs" / "faults.md"
    assert page.read_text() == capsys.readouterr().out
