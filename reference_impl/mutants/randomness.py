"""Coins that are shared, used twice, or not the request's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
import torch
from torch import Tensor

from harness.contract import Completion, Request
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal
from reference_impl.randomness import Streams

FAMILY, SEED, UNSEEDED = "distribution.family", "randomness.seed", "randomness.unseeded"
SAMPLED, SEEDS = "batching.sampled", "randomness.seeds"


def reseeded(
    requests: Sequence[Request], seed: Callable[[int | None, int], int | None]
) -> list[Request]:
    """Speculative requests with another seed, made of their own and their row."""
    return [
        msgspec.structs.replace(r, seed=seed(r.seed, row)) if r.speculate else r
        for row, r in enumerate(requests)
    ]


# --- seeds ----------------------------------------------------------------------------------------


@mutant(FaultClass.RANDOMNESS, SEED, SAMPLED, id="F48", source="vllm-project/vllm#6038")
class GlobalGenerator(SpeculativeEngine):
    """The seed reaches the draft alone: acceptance and residual use the global generator."""

    def coins(self, batch: Batch, used: Tensor, most: int) -> Tensor:
        if not batch.draft_tokens.any():
            return super().coins(batch, used, most)
        return torch.rand(len(batch), most, dtype=torch.float64, device=self.device)


@mutant(FaultClass.RANDOMNESS, UNSEEDED, id="F49", source="NVIDIA/TensorRT-LLM#19487")
class RestartedGenerator(SpeculativeEngine):
    """Requests without a seed get the same one in every call."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate(reseeded(requests, lambda seed, row: row if seed is None else seed))


@mutant(FaultClass.RANDOMNESS, UNSEEDED)
class SeedStays(SpeculativeEngine):
    """A seed stays in force: requests without one go on where the last seeded one began."""

    _generator = random.Random()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        for request in requests:
            if request.seed is not None and request.speculate:
                self._generator = random.Random(request.seed)
        draw = self._generator.getrandbits
        return super().generate(
            reseeded(requests, lambda seed, row: draw(32) if seed is None else seed)
        )


@mutant(FaultClass.RANDOMNESS, SEED, SAMPLED)
class SeedIgnored(SpeculativeEngine):
    """Seeds are ignored."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate(reseeded(requests, lambda seed, row: None))


@mutant(FaultClass.RANDOMNESS, SEED, SAMPLED)
class SeedPlusRow(SpeculativeEngine):
    """The row's number in its batch is added to its seed."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return super().generate(
            reseeded(requests, lambda seed, row: None if seed is None else seed + row)
        )


@mutant(FaultClass.RANDOMNESS, SEEDS, subtle={"bits": 8})
class SeedTruncated(SpeculativeEngine):
    """Only the lowest bits of a seed are used."""

    bits = 3

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        most = 1 << self.bits
        return super().generate(
            reseeded(requests, lambda seed, row: None if seed is None else seed % most)
        )


# --- coins ----------------------------------------------------------------------------------------


@mutant(
    FaultClass.RANDOMNESS,
    f"{FAMILY}[micro-T=1 K=4]",
    id="F52",
    source="flashinfer-ai/flashinfer#424",
)
class OneCoin(SpeculativeEngine):
    """One coin serves all tests of a round, and the token after them."""

    def coins(self, batch: Batch, used: Tensor, most: int) -> Tensor:
        return super().coins(batch, used, most)[:, :1].expand(-1, most)


@mutant(FaultClass.RANDOMNESS, FAMILY)
class CoinChoosesToo(SpeculativeEngine):
    """The coin that rejected a draft also picks the token in its place."""

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        kept = super().accepted(p, q, u, count)
        self._coin, self._rejected = u, (kept < count)
        self._at = kept
        return kept

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        if self._coin.shape[1]:
            at = self._at.clamp(max=self._coin.shape[1] - 1).unsqueeze(1)
            u = torch.where(self._rejected, self._coin.gather(1, at).squeeze(1), u)
        return super().choose(p, q, u)


@mutant(FaultClass.RANDOMNESS, FAMILY)
class DraftsAndTestsAlike(SpeculativeEngine):
    """The number that drew a draft is also the coin that tests it."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        self._before = batch.streams._drawn
        return super().propose(batch, count)

    def coins(self, batch: Batch, used: Tensor, most: int) -> Tensor:
        batch.streams._drawn = self._before
        return super().coins(batch, used, most)


@mutant(FaultClass.RANDOMNESS, f"{FAMILY}[micro-T=1 K=4]")
class RestartedEachRound(SpeculativeEngine):
    """A seeded request draws the same numbers in every round."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        if batch.draft_tokens.any():
            batch.streams = Streams([r.seed for r in batch.requests], self.device)
        return super().propose(batch, count)


@mutant(FaultClass.RANDOMNESS, UNSEEDED, SAMPLED)
class SharedByRows(SpeculativeEngine):
    """All rows of a batch are given the first row's coins."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        if batch.draft_tokens.any():
            batch.streams._key = batch.streams._key[:1].expand(len(batch))
        return super().propose(batch, count)
