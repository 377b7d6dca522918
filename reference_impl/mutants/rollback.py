"""What a round leaves in the cache of the target: rows of rejected tokens, or too few."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Emitted
from reference_impl.recurrent import cached_model
from reference_impl.transfers import to_device


class _Roomy(SpeculativeEngine):
    """A cache that has room for all that is never taken out of it."""

    def capacity(self, batch: Batch) -> int:
        return super().capacity(batch) * (int(batch.draft_tokens.max()) + 1)


@mutant(
    FaultClass.CACHE,
    "greedy.identity",
    "cache.all_rejected",
    "distribution.evidence",
    subtle={"most": 1},
)
class NoRollback(_Roomy):
    """Rejected tokens stay in the cache of the target."""

    most = 1 << 30

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        return np.minimum(fed, committed + self.most)


@mutant(FaultClass.CACHE, "greedy.identity", "cache.all_rejected", "distribution.evidence")
class RollbackTooFar(SpeculativeEngine):
    """With the rejected tokens, the last one that was kept is taken out as well."""

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        rejected = fed > committed
        return np.maximum(super().rollback(fed, committed) - rejected, 0)


@mutant(
    FaultClass.CACHE,
    "greedy.identity",
    "cache.all_rejected",
    "distribution.evidence",
    id="F21",
    source="ggml-org/llama.cpp#26695",
)
class NoRollbackToTheStart(_Roomy):
    """A block of which nothing was accepted is not rolled back."""

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        valid = super().commit(batch, cached, emitted)
        none = (emitted.proposal.count > 0) & (emitted.accepted.cpu().numpy() == 0)
        return np.where(none, cached + emitted.tokens.shape[1], valid)


@mutant(
    FaultClass.CACHE,
    "greedy.identity",
    "cache.all_rejected",
    "distribution.evidence",
    id="F22",
    source="paiml/aprender#2014",
)
class RollbackClears(SpeculativeEngine):
    """A rejection clears the cache: prompt and history are gone."""

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        return np.where(fed > committed, 0, super().rollback(fed, committed))


@mutant(FaultClass.CACHE, "greedy.identity", "cache.none_rejected", "distribution.evidence")
class SlotSkipped(_Roomy):
    """After a fully accepted block a slot of the cache stays empty."""

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        valid = super().commit(batch, cached, emitted)
        count = emitted.proposal.count
        full = (count > 0) & (emitted.accepted.cpu().numpy() == count)
        return np.where(full, valid + 1, valid)


class StaleModel(CachedModel):
    """Keeps what an earlier block wrote to the slot at which a block begins."""

    _end: Ints | None = None

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        layers = self._cache.layers
        row = torch.arange(len(start), device=self.device)
        at = to_device(start, self.device)
        rejected = None if self._end is None else torch.from_numpy(self._end > start)
        kept = [(a.keys[row, :, at], a.values[row, :, at]) for a in layers if rejected is not None]
        logits = super().forward(ids, start, keep)
        for layer, (keys, values) in zip(layers, kept, strict=False):
            layer.keys[row[rejected], :, at[rejected]] = keys[rejected]
            layer.values[row[rejected], :, at[rejected]] = values[rejected]
        self._end = None if keep else start + ids.shape[1]
        return logits

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self._end = None if self._end is None else self._end[rows.cpu().numpy()]


@mutant(FaultClass.CACHE, "greedy.identity", "cache.all_rejected", "distribution.evidence")
class StaleRow(SpeculativeEngine):
    """The token after a rejection leaves the rejected one's keys and values in their slot."""

    def cache(self, capacity: int) -> CachedModel:
        return cached_model(self.target, capacity, self.vocab, keys=StaleModel)
