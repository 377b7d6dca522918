"""Lookup first, and a draft model or an EAGLE layer where the text has nothing to look up.

What is found in the text costs nothing and may be long; the second one is asked only if some row of
the batch has no match. Each row is judged by the q of what proposed for it: a point mass, or the
draft's law. Which of the two it is follows from the text alone, so the law stays the target's.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.proposal import Drafter, Proposal
from reference_impl.sampling import one_hot
from reference_impl.transfers import to_device


class Second(Drafter, Protocol):
    """A drafter that may be left out of rounds."""

    def leave_out(self, batch: Batch) -> None:
        """Nothing is asked of it in this round."""
        ...


class CascadeDrafter:
    """Asks a lookup, then another drafter.

    Parameters
    ----------
    lookup : NgramDrafter
        Prompt lookup, its table, or a suffix automaton.
    second : Second
        A ``ModelFollower`` or an ``EagleDrafter``, which reads the target's states in every round,
        asked or not.
    vocab : int
        Token ids in use.
    """

    def __init__(self, lookup: NgramDrafter, second: Second, vocab: int) -> None:
        self.lookup, self.second, self.vocab = lookup, second, vocab

    def start(self, batch: Batch, capacity: int) -> None:
        """Begin both."""
        self.lookup.start(batch, capacity)
        self.second.start(batch, capacity)

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row."""
        found = self.lookup.propose(batch, count)
        self._asked: Ints = (found.count == 0) & (count > 0)  # rows the second one proposes for
        if not self._asked.any():
            self.second.leave_out(batch)
            return found
        drawn = self.second.propose(batch, np.where(self._asked, count, 0))
        return self._together(found, drawn, to_device(self._asked, batch.device))

    def _together(self, found: Proposal, drawn: Proposal, asked: Tensor) -> Proposal:
        """One proposal of two: the drawn tokens in the rows that were asked for."""
        width = max(found.tokens.shape[1], drawn.tokens.shape[1])
        ours, theirs = (
            pad(proposal.tokens, (0, width - proposal.tokens.shape[1]))
            for proposal in (drawn, found)
        )
        tokens = torch.where(asked[:, None], ours, theirs)
        q = None
        if drawn.q is not None:
            laws = pad(drawn.q, (0, 0, 0, width - drawn.q.shape[1]))
            q = torch.where(asked[:, None, None], laws, one_hot(theirs, self.vocab))
        return Proposal(tokens, found.count + drawn.count, q)

    def observe(self, accepted: Ints) -> None:
        """What was accepted of lookups the second one has not seen yet."""
        if self._asked.any():
            self.second.observe(np.where(self._asked, accepted, 0))

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self.lookup.select(rows)
        self.second.select(rows)


class ModelFollower(ModelDrafter):
    """A draft model that is left out of rounds, and so has much to catch up with in others."""

    def leave_out(self, batch: Batch) -> None:
        """It will read what was committed when it is asked."""

    def _catch_up(self, batch: Batch) -> Tensor:
        # Rows that have seen more are fed some of it again: all of them end with the text.
        missing = int((batch.length - self._cached).max())
        self._cached = np.maximum(batch.length - max(1, missing), 0)
        return super()._catch_up(batch)
