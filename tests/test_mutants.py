"""Every mutant is killed by each of the checks that must see it, through the contract alone."""

from __future__ import annotations

import pytest

from harness import items, matrix
from reference_impl.mutants import MUTANTS

CELLS = [(name, pattern) for name, mutant in MUTANTS.items() for pattern in mutant.killed_by]


@pytest.mark.parametrize(("name", "pattern"), CELLS)
def test_a_mutant_is_killed_where_it_must_be(name: str, pattern: str) -> None:
    found = [str(item) for item in items.items("smoke") if matrix.matches(item, [pattern])]
    assert found, f"no item of the suites is {pattern}"
    cells = matrix.run(matrix.Row(f"{matrix.MUTANTS}:{name}", found, until_killed=True))
    assert cells[-1].kills, [cell.message for cell in cells]
