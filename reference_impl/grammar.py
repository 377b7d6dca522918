"""Which tokens a request's grammar lets follow, for a batch of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.contract import Grammar


@dataclass
class Automata:
    """Finite automata over token ids, and the state each row is in.

    All states of all grammars are numbered together. State 0 belongs to none of them: everything
    is allowed there and nothing leads out. Rows without a grammar are in it, and texts that no
    grammar describes: drafts that it forbids, and what is drafted beyond the end of an output.
    Nobody looks at the laws that follow those.

    Attributes
    ----------
    following : Tensor [S, V], int64
        The state that a token leads to.
    allowed : Tensor [S, V], bool
    state : Tensor [R], int64
    """

    following: Tensor
    allowed: Tensor
    state: Tensor

    @classmethod
    def of(
        cls,
        grammars: Sequence[Grammar | None],
        outputs: Sequence[Sequence[int]],
        vocab: int,
        device: torch.device | str = "cpu",
    ) -> Automata | None:
        """Walk each row's grammar along its output; None where no row has one."""
        first: dict[int, int] = {}  # requests of a batch mostly share their grammar
        states: list[dict[int, int]] = [{}]
        for grammar in grammars:
            if grammar is not None and id(grammar) not in first:
                start = first[id(grammar)] = len(states)
                states += [{t: start + s for t, s in state.items()} for state in grammar.states]
        if not first:
            return None
        following = torch.zeros(len(states), vocab, dtype=torch.int64)
        allowed = torch.ones(len(states), vocab, dtype=torch.bool)
        for number, state in enumerate(states):
            if state:  # one that allows nothing is the end
                tokens = list(state)
                following[number, tokens] = torch.tensor(list(state.values()))
                allowed[number] = False
                allowed[number, tokens] = True
        reached = []
        for grammar, output in zip(grammars, outputs, strict=True):
            at = None if grammar is None else grammar.walk(output)
            reached.append(0 if at is None else first[id(grammar)] + at)
        return cls(following.to(device), allowed.to(device), torch.tensor(reached, device=device))

    def after(self, drafts: Tensor) -> Automata:
        """States before and after each of ``drafts`` [B, K]: row b * (K + 1) + i after i of b's."""
        states = [self.state]
        for column in drafts.unbind(1):
            states.append(self.following[states[-1], column])
        return replace(self, state=torch.stack(states, 1).flatten())

    def extended(self, tokens: Tensor, valid: Tensor) -> Automata:
        """States after ``tokens`` [R, T] where ``valid`` [R, T]."""
        state = self.state
        for column, counts in zip(tokens.unbind(1), valid.unbind(1), strict=True):
            state = torch.where(counts, self.following[state, column], state)
        return replace(self, state=state)

    def rows(self, index: Tensor) -> Automata:
        """Rows in another order, dropped or repeated."""
        return replace(self, state=self.state[index])

    def forbid(self, logits: Tensor) -> Tensor:
        """``logits`` [R, V], -inf where the state does not allow the token."""
        return logits.masked_fill(~self.allowed[self.state], -torch.inf)
