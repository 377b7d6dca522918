"""Drafters that read the target's own states instead of the text: Medusa, EAGLE."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.sequential import SequentialDrafter
from reference_impl.proposal import Drafter


def reader(drafter: Drafter | None) -> FeatureDrafter | None:
    """Who reads states: the drafter, or the one that a cascade asks second."""
    found = getattr(drafter, "second", drafter)
    return found if isinstance(found, FeatureDrafter) else None


class FeatureDrafter(SequentialDrafter):
    """Is shown the states of all tokens that the target is fed, those of rejected drafts too.

    The last token of a text opens the next block: the target has not seen it yet. What there is
    to read are the states of the tokens before it; a text of one token has none.

    Attributes
    ----------
    depths : tuple of int
        Of ``CachedModel``: which states.
    dtype : torch.dtype or None
        That states are read in, whatever the target gives; None: as they are.
    """

    depths: tuple[int, ...] = (-1,)
    dtype: torch.dtype | None = None

    def start(self, batch: Batch, capacity: int) -> None:
        """Take up a new batch."""
        self._features: Tensor | None = None  # [B, T, D]
        self._first: Ints = np.zeros(len(batch), dtype=np.int64)

    def see(self, features: Tensor, start: Ints) -> None:
        """Take the states [B, T, D] of the tokens from the positions ``start`` [B] on."""
        self._features, self._first = features.to(self.dtype or features.dtype), start

    def known(self, batch: Batch) -> Ints:
        """Whether there is something to read in a row, [B]: 0 or 1."""
        known = (batch.length > 1) & (self._features is not None)
        return known.astype(np.int64)

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self._first = self._first[rows.cpu().numpy()]
        if self._features is not None:
            self._features = self._features[rows]
