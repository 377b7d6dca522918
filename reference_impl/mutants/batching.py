"""Rows of a batch that get in each other's way."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.contract import Completion, Request
from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal
from reference_impl.transfers import to_device

ROWS, SAMPLED, ENDS = "batching.rows", "batching.sampled", "batching.ends"


@mutant(FaultClass.BATCH, ROWS, id="F45", source="vllm-project/vllm-ascend#16396")
class PlaceForToken(SpeculativeEngine):
    """In a mixed batch the greedy token is its place among the sorted candidates."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        if not (batch.parameters.mixed and batch.draft_tokens.any()):
            return p
        place = processed.sort(-1, descending=True).values.argmax(-1)
        greedy = (batch.parameters.temperature == 0).unsqueeze(2)
        return torch.where(greedy, sampling.one_hot(place, self.vocab), p)


@mutant(FaultClass.BATCH, ROWS, id="F46", source="vllm-project/vllm#27077")
class DividesByZero(SpeculativeEngine):
    """In a mixed batch the logits of greedy rows are divided by their temperature, 0."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        if not (batch.parameters.mixed and batch.draft_tokens.any()):
            return p
        zero = (batch.parameters.temperature == 0).unsqueeze(2)
        return torch.where(zero, (processed / 0).softmax(-1), p)


@mutant(FaultClass.BATCH, ROWS, id="F54", source="HabanaAI/vllm-fork#1780")
class UndraftedFirst(SpeculativeEngine):
    """Rows without a draft are answered first, and all are read back in the order asked."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        answers = super().generate(requests)
        order = sorted(range(len(requests)), key=lambda row: requests[row].speculate)
        return [answers[row] for row in order]


@mutant(
    FaultClass.BATCH,
    SAMPLED,
    "acceptance.identities",
    id="F55",
    source="flashinfer-ai/flashinfer#879",
)
class PaddingIsJudged(SpeculativeEngine):
    """What pads a short draft is read at index -1, judged like a draft, and may be emitted."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        place = torch.arange(proposal.tokens.shape[1], device=self.device)
        padding = place >= to_device(count, self.device).unsqueeze(1)
        return dataclasses.replace(
            proposal, tokens=proposal.tokens.masked_fill(padding, self.vocab - 1)
        )

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        return super().accepted(p, q, u, torch.full_like(count, p.shape[1]))


@mutant(
    FaultClass.BATCH,
    ROWS,
    SAMPLED,
    id="F77",
    source="lucidrains/speculative-decoding#3",
)
class CutToLongest(SpeculativeEngine):
    """All rows keep as many tokens of a round as the one that accepted most."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        return super().cut(batch, emitted, np.full_like(count, count[batch.active].max()))


@mutant(FaultClass.BATCH, ROWS)
class GreedyRowSampled(SpeculativeEngine):
    """In a mixed batch greedy rows are sampled at temperature 1."""

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        p = super().law(processed, batch)
        if not (batch.parameters.mixed and batch.draft_tokens.any()):
            return p
        greedy = (batch.parameters.temperature == 0).unsqueeze(2)
        return torch.where(greedy, processed.softmax(-1), p)


@mutant(FaultClass.BATCH, SAMPLED)
class WorstAccepted(SpeculativeEngine):
    """Every row accepts as many drafts as the one that accepts fewest."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        kept = super().accepted(p, q, u, count)
        return kept.minimum(kept[count > 0].amin()) if bool((count > 0).any()) else kept


@mutant(FaultClass.BATCH, ENDS)
class FirstRowsRemain(SpeculativeEngine):
    """When rows have ended, the cache keeps the first rows instead of those that go on."""

    def cache(self, capacity: int) -> CachedModel:
        target = super().cache(capacity)
        select = target.select
        target.select = lambda rows: select(torch.arange(len(rows)))  # type: ignore[method-assign]
        return target


@mutant(FaultClass.BATCH, ENDS)
class EndedRowsGoOn(SpeculativeEngine):
    """A row that has ended goes on as long as its neighbours do."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        one_more = np.minimum(1, batch.limit - batch.length)
        return np.where(batch.active, super().cut(batch, emitted, count), one_more)

    def _generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        done: dict[int, Completion] = {}
        for batch in self.rounds(requests):
            for row in np.flatnonzero(~batch.active):
                done[int(batch.index[row])] = self.completion(batch, int(row))
        return [done[i] for i in range(len(requests))]


@mutant(FaultClass.BATCH, ROWS)
class PaddingIsSeen(SpeculativeEngine):
    """Shorter prompts are padded behind, and what follows sees the padding."""

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        cached = super().prefill(batch, target)
        return np.full_like(cached, cached.max()) if batch.draft_tokens.any() else cached


@mutant(FaultClass.BATCH, ROWS)
class SettingsOfFirstRow(SpeculativeEngine):
    """All drafted rows of a batch are decoded under the first row's parameters."""

    def _generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        first = requests[0].sampling
        alike = [msgspec.structs.replace(r, sampling=first) if r.speculate else r for r in requests]
        return super()._generate_batch(alike)
