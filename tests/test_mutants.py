"""Every mutant is killed by each of the checks that must see it, through the contract alone."""

from __future__ import annotations

import pytest

from harness import items, matrix
from reference_impl.mutants import MUTANTS
from reference_impl.mutants.registry import CLASSIC

CATALOGUE = [  # of public faults: https://github.com/ and each entry's source, in docs/faults.md
    *(f"F{n:02}" for n in (1, 3, 4, 5, 6, 8, 9, *range(10, 16), *range(17, 29), *range(30, 36))),
    *(f"F{n}" for n in (*range(37, 41), *range(43, 47), 48, 49, 51, 52, *range(54, 64))),
    *(f"F{n}" for n in (*range(65, 69), *range(70, 80))),
]
CELLS = [(name, pattern) for name, mutant in MUTANTS.items() for pattern in mutant.killed_by]


@pytest.mark.parametrize(("name", "pattern"), CELLS)
def test_a_mutant_is_killed_where_it_must_be(name: str, pattern: str) -> None:
    found = [str(item) for item in items.items("smoke") if matrix.matches(item, [pattern])]
    assert found, f"no item of the suites is {pattern}"
    cells = matrix.run(matrix.Row(f"{matrix.MUTANTS}:{name}", found, until_killed=True))
    assert cells[-1].kills, [cell.message for cell in cells]


def test_every_public_fault_has_its_mutant() -> None:
    assert len(CATALOGUE) == 67
    assert {mutant.id for mutant in MUTANTS.values()} == {*CATALOGUE, ""}
    assert all((mutant.source == CLASSIC) == (not mutant.id) for mutant in MUTANTS.values())


def test_every_check_kills_something() -> None:
    killing = {pattern.partition("[")[0] for _, pattern in CELLS}
    assert {item.check for item in items.items("smoke")} <= killing
