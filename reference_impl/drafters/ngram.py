"""Prompt lookup: what followed the last few tokens when they last occurred (Saxena 2023).

Needs no model and costs next to nothing; the proposal is fixed by the text, so q is a point mass.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import Proposal


class NgramDrafter:
    """Looks the longest suffix of at most ``max_ngram`` tokens up in the row's own text.

    Parameters
    ----------
    max_ngram, min_ngram : int
        Longest and shortest suffix to look up.
    """

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"min_ngram {min_ngram}, max_ngram {max_ngram}: 1 <= min <= max needed")
        self.sizes = range(max_ngram, min_ngram - 1, -1)

    def start(self, batch: Batch, capacity: int) -> None:
        """Nothing to prepare: the text itself is the table."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row, none where nothing is found."""
        found = np.zeros_like(count)
        drafts = np.zeros((len(batch), int(count.max())), dtype=np.int64)
        for row in np.flatnonzero(count):
            text = batch.tokens[row, : batch.length[row]]
            proposal = self.lookup(text)[: count[row]]
            found[row] = len(proposal)
            drafts[row, : len(proposal)] = proposal
        drafts = drafts[:, : int(found.max())]
        return Proposal(torch.from_numpy(drafts).to(batch.device), found)

    def lookup(self, text: Ints) -> Ints:
        """What followed the longest suffix where it occurred last, [any]; empty if nowhere."""
        for size in self.sizes:
            if size >= len(text):
                continue
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            matches = np.flatnonzero((windows == text[-size:]).all(1))
            if len(matches):
                return text[matches[-1] + size :]
        return text[:0]

    def observe(self, accepted: Ints) -> None:
        """Nothing to learn."""

    def select(self, rows: Tensor) -> None:
        """No state per row."""
