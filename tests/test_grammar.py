"""Automata of a batch of rows: where each is, and what may follow."""

from __future__ import annotations

import torch

from harness.contract import Grammar
from reference_impl.grammar import Automata

PARITY = Grammar(({1: 1, 3: 1}, {0: 0, 2: 2}, {}))  # odd, even, odd .. up to a 2
ONLY_2 = Grammar(({2: 0},))


def allowed(automata: Automata, vocab: int = 4) -> list[list[int]]:
    free = automata.forbid(torch.zeros(len(automata.state), vocab)).isfinite()
    return [row.nonzero().flatten().tolist() for row in free]


def automata_of(*rows: tuple[Grammar | None, list[int]]) -> Automata:
    found = Automata.of([g for g, _ in rows], [output for _, output in rows], vocab=4)
    assert found is not None
    return found


def test_each_row_is_in_a_state_of_its_own_grammar() -> None:
    rows = automata_of((PARITY, []), (ONLY_2, [2, 2]), (PARITY, [3]), (None, [1]))
    assert allowed(rows) == [[1, 3], [2], [0, 2], [0, 1, 2, 3]]


def test_nothing_is_forbidden_behind_the_end_and_where_the_grammar_was_left() -> None:
    rows = automata_of((PARITY, [1, 2]), (PARITY, [1, 2, 3]), (PARITY, [1, 1]), (ONLY_2, [0]))
    assert allowed(rows) == [[0, 1, 2, 3]] * 4


def test_drafts_are_walked_one_by_one() -> None:
    rows = automata_of((PARITY, []), (ONLY_2, []))
    after = rows.after(torch.tensor([[1, 0, 1], [2, 1, 2]]))
    everything = [0, 1, 2, 3]
    assert allowed(after) == [[1, 3], [0, 2], [1, 3], [0, 2], [2], [2], everything, everything]


def test_only_valid_tokens_move_a_row() -> None:
    rows = automata_of((PARITY, []), (PARITY, []))
    valid = torch.tensor([[True, False], [True, True]])
    assert allowed(rows.extended(torch.tensor([[1, 0], [1, 0]]), valid)) == [[0, 2], [1, 3]]


def test_rows_are_picked() -> None:
    rows = automata_of((PARITY, []), (ONLY_2, []), (None, []))
    assert allowed(rows.rows(torch.tensor([1, 0, 1]))) == [[2], [1, 3], [2]]


def test_no_grammar_is_no_automaton() -> None:
    assert Automata.of([None, None], [[], [1]], vocab=4) is None


def test_a_shared_grammar_has_its_states_once() -> None:
    assert len(automata_of(*[(PARITY, [])] * 5).following) == 1 + len(PARITY.states)
