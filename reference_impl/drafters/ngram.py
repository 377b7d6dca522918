"""Prompt lookup: what followed the last few tokens when they last occurred (Saxena 2023).

Needs no model and costs next to nothing; the proposal is fixed by the text, so q is a point mass.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.proposal import Proposal
from reference_impl.transfers import to_device


class NgramDrafter:
    """Looks the longest suffix of at most ``max_ngram`` tokens up in the row's own text.

    Parameters
    ----------
    max_ngram, min_ngram : int
        Longest and shortest suffix to look up.
    """

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(
                f"min_ngram {min_ngram}, max_ngram {max_ngram}: 1 <= min <= max needed"
            )
        self.sizes = range(max_ngram, min_ngram - 1, -1)

    def start(self, batch: Batch, capacity: int) -> None:
        """Nothing to prepare: the text itself is the table."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row, none where nothing is found."""
        after = self.lookup(batch.tokens, batch.length)
        found = np.minimum(count, batch.length - after)
        drafts = batch.tokens_from(after, int(found.max()))
        return Proposal(to_device(drafts, batch.device), found)

    def lookup(self, tokens: Ints, length: Ints) -> Ints:
        """Where the text goes on after the last earlier occurrence of its longest known suffix.

        Parameters
        ----------
        tokens : ndarray [B, C]
        length : ndarray [B]
            Tokens of each row in use.

        Returns
        -------
        ndarray [B]
            Index of the token that followed; ``length`` where no suffix occurred before.
        """
        after = length.copy()
        for size in self.sizes:
            starts = tokens.shape[1] - size + 1
            if starts < 1:
                continue
            matches = np.arange(starts) + size < length[:, None]  # something must follow it
            for i in range(size):
                suffix = np.take_along_axis(tokens, np.maximum(length - size + i, 0)[:, None], 1)
                matches &= tokens[:, i : i + starts] == suffix
            last = starts - 1 - matches[:, ::-1].argmax(1)
            new = matches.any(1) & (after == length)
            after[new] = last[new] + size
        return after

    def observe(self, accepted: Ints) -> None:
        """Nothing to learn."""

    def select(self, rows: Tensor) -> None:
        """No state per row."""


class NgramTable(NgramDrafter):
    """The same proposals from a table: where each suffix goes on, learned as tokens are committed.

    It reads every token once, however long the text grows.
    """

    def start(self, batch: Batch, capacity: int) -> None:
        """Forget all texts."""
        self._tables: list[dict[tuple[int, ...], int]] = [{} for _ in range(len(batch))]
        self._read = [1] * len(batch)

    def lookup(self, tokens: Ints, length: Ints) -> Ints:
        """Learn what is new, then look the longest suffix up; answers as for prompt lookup."""
        after = length.copy()
        for row, (table, n) in enumerate(zip(self._tables, length.tolist(), strict=True)):
            text = tokens[row, :n].tolist()
            for at in range(self._read[row], n):  # ``at`` follows the suffixes that end before it
                table |= {tuple(text[at - size : at]): at for size in self.sizes if size <= at}
            self._read[row] = max(self._read[row], n)
            known = (table.get(tuple(text[n - size :])) for size in self.sizes if size <= n)
            after[row] = next((at for at in known if at is not None), n)
        return after

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        self._tables = [self._tables[row] for row in rows.tolist()]
        self._read = [self._read[row] for row in rows.tolist()]
