"""What a drafter proposes, and what a drafter is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import Ints


@dataclass
class Proposal:
    """The drafted tokens of one round.

    Attributes
    ----------
    tokens : Tensor [B, K], int64
        Rows that propose fewer are padded at the end with any valid id.
    count : ndarray [B], int64
        How many of them each row proposes.
    q : Tensor [B, K, V] or None
        The laws they were drawn from; None for tokens that were not drawn but fixed.
    """

    tokens: Tensor
    count: Ints
    q: Tensor | None = None


@dataclass(frozen=True)
class Emitted:
    """What a round has made of a proposal.

    Attributes
    ----------
    proposal : Proposal
    accepted : Tensor [B], int64
        How many of its tokens were accepted.
    tokens : Tensor [B, K + 1], int64
        Those, and the one that the target chose; padded at the end.
    logprobs : Tensor [B, K + 1], float, or None
        None where no row asks for them.
    """

    proposal: Proposal
    accepted: Tensor
    tokens: Tensor
    logprobs: Tensor | None


class Drafter(Protocol):
    """Proposes tokens for a batch of rows, and may keep a state for each of them."""

    def start(self, batch: Batch, capacity: int) -> None:
        """Take up a new batch."""
        ...

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row."""
        ...

    def observe(self, accepted: Ints) -> None:
        """Learn how many tokens [B] of the last proposal were accepted."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows of the batch."""
        ...
