"""Faults of streams: pieces that are not the output, and what a cancelled one leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.contract import Request
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant


@mutant(
    FaultClass.STREAM,
    "streaming.every_id",
    id="F67",
    source="vllm-project/vllm#43055, 42781, 43221",
    needs=("stream",),
)
class MarkerCutsPiece(SpeculativeEngine):
    """Of a piece that holds a certain id only what comes after it is sent."""

    def stream(self, request: Request) -> Iterator[list[int]]:
        marker = self.vocab // 2
        for piece in super().stream(request):
            yield piece[piece.index(marker) + 1 :] if marker in piece[1:] else piece


@mutant(
    FaultClass.STREAM,
    "streaming.pieces",
    id="F68",
    source="osaurus-ai/vmlx-swift#148",
    needs=("stream",),
    subtle={"held": 1},
)
class HeldBackForever(SpeculativeEngine):
    """The last tokens of a stream are held back, and never sent.

    Attributes
    ----------
    held : int
        How many.
    """

    held = 6

    def stream(self, request: Request) -> Iterator[list[int]]:
        tokens: list[int] = []
        for piece in super().stream(request):
            tokens += piece
            yield tokens[: -self.held]
            tokens = tokens[-self.held :]


@mutant(FaultClass.STREAM, "streaming.pieces", needs=("stream",))
class RepeatsAtBorder(SpeculativeEngine):
    """The token before a piece is sent with it again, where the block before was accepted whole."""

    def stream(self, request: Request) -> Iterator[list[int]]:
        before: list[int] = []
        for piece in super().stream(request):
            yield before[-1:] + piece if len(before) > request.draft_tokens else piece
            before = piece


@mutant(FaultClass.STREAM, "streaming.pieces", needs=("stream",))
class StreamsWholeBlocks(SpeculativeEngine):
    """The last block is sent whole, also where EOS, stop sequence or length cut it."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        kept = super().cut(batch, emitted, count)
        self._behind = emitted[0, kept[0] : count[0]].tolist()
        return kept

    def stream(self, request: Request) -> Iterator[list[int]]:
        for piece in super().stream(request):
            yield piece + self._behind


@mutant(FaultClass.STREAM, "streaming.cancel", needs=("stream",))
class CancelledCacheIsReused(SpeculativeEngine):
    """After a stream was closed the next request finds its own prompt cached, which it is not."""

    _cancelled: CachedModel | None = None

    def stream(self, request: Request) -> Iterator[list[int]]:
        try:
            yield from super().stream(request)
        except GeneratorExit:
            self._cancelled = self._latest
            raise

    def cache(self, capacity: int) -> CachedModel:
        self._latest = super().cache(capacity)
        return self._latest

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        if self._cancelled is None or len(batch) > 1:
            return super().prefill(batch, target)
        self._cancelled = None
        target.prefill(torch.zeros_like(batch.texts_but_last()))
        return batch.prompt_length - 1
