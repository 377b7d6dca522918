"""The sampled exchanges as training batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file


class Targets(NamedTuple):
    """The target's side at some positions: head inputs [n, hidden], log normalisers [n] float32."""

    hidden: torch.Tensor
    log_z: torch.Tensor


@dataclass(frozen=True)
class Batch:
    """Exchanges side by side, right-padded; scored positions are those that draw the answer.

    Attributes
    ----------
    ids : torch.Tensor
        [B, T] int64, zeros as padding (a causal model does not see it).
    scored : torch.Tensor
        [B, T] bool, True where the next token is one of the answer, its end included.
    features : torch.Tensor
        [B, T, F], the target's states at every position: of one depth or of several, side by
        side; the last ones are what goes into the head.
    width : int
        Of the states of one depth.
    log_z : torch.Tensor
        [B, T] float32, log normaliser of the target's law there.
    """

    ids: torch.Tensor
    scored: torch.Tensor
    features: torch.Tensor
    width: int
    log_z: torch.Tensor

    @property
    def hidden(self) -> torch.Tensor:
        """The target's head input, [B, T, width]."""
        return self.features[..., -self.width :]

    def targets(self, where: torch.Tensor) -> Targets:
        """At these positions [B, T], row by row."""
        return Targets(self.hidden[where], self.log_z[where])


class Exchanges:
    """All exchanges of some shards of `corpus.sample_corpus`, in memory.

    Parameters
    ----------
    shards : sequence of Path
    width : int
        Of the target's states.
    """

    def __init__(self, shards: Sequence[Path], width: int) -> None:
        self.width = width
        parts = [load_file(path) for path in shards]

        def joined(name: str) -> torch.Tensor:
            return torch.cat([part[name] for part in parts])

        self.ids, self.features, self.log_z = joined("ids"), joined("features"), joined("log_z")
        self.tasks, self.temperatures = joined("tasks"), joined("temperatures")
        self.lengths, self.answers = joined("lengths").tolist(), joined("answers").tolist()
        self.starts = [0, *torch.tensor(self.lengths).cumsum(0).tolist()[:-1]]

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: Sequence[int]) -> Batch:
        """Put the given exchanges into one batch."""
        longest = max(self.lengths[row] for row in rows)
        shape = (len(rows), longest)
        ids = torch.zeros(shape, dtype=torch.int64)
        scored = torch.zeros(shape, dtype=torch.bool)
        features = self.features.new_zeros(*shape, self.features.shape[1])
        log_z = self.log_z.new_zeros(shape)
        for i, row in enumerate(rows):
            start, length, first = self.starts[row], self.lengths[row], self.answers[row] - 1
            here = slice(start, start + length)
            ids[i, :length], features[i, :length] = self.ids[here], self.features[here]
            log_z[i, :length] = self.log_z[here]
            scored[i, first:length] = True
        return Batch(ids, scored, features, self.width, log_z)

    def epoch(self, size: int, seed: int, pool: int = 16) -> list[list[int]]:
        """Shuffle the exchanges into batches of `size` rows of similar length.

        Rows are sorted by length only within pools of `pool` batches, so that the padding
        is small and the batches are still random. A last, smaller batch is dropped.
        """
        rng = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self), generator=rng).tolist()
        batches = []
        for i in range(0, len(order), size * pool):
            rows = sorted(order[i : i + size * pool], key=self.lengths.__getitem__)
            batches += [rows[j : j + size] for j in range(0, len(rows) - size + 1, size)]
        shuffled = torch.randperm(len(batches), generator=rng).tolist()
        return [batches[i] for i in shuffled]

    def frequent_tokens(self, size: int, also: Sequence[int]) -> torch.Tensor:
        """Return the `size` most frequent tokens and those of `also`, ascending int64 ids."""
        counts = torch.bincount(self.ids.long(), minlength=size)
        best = counts.sort(descending=True, stable=True).indices[:size]
        return torch.tensor(sorted({*best.tolist(), *also}))
