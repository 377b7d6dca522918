"""What a drafter proposes, and what a drafter is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
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

    def fetched(self) -> tuple[Ints, Ints, NDArray[np.float64] | None]:
        """``accepted``, ``tokens``, ``logprobs`` on the host: a round's one wait for the device."""
        parts = [self.accepted.unsqueeze(1), self.tokens]
        if self.logprobs is None:
            found = torch.cat(parts, 1).cpu().numpy()
            return found[:, 0], found[:, 1:], None
        # In one copy: ids are far below the 2^53 up to which a double holds all integers.
        width = 1 + self.tokens.shape[1]
        both = torch.cat([*(part.double() for part in parts), self.logprobs.double()], 1)
        found = both.cpu().numpy()
        ids = found[:, :width].astype(np.int64)
        return ids[:, 0], ids[:, 1:], found[:, width:]


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
