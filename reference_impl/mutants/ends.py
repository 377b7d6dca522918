"""Faults of where output ends: EOS, stop sequences, length, min_new_tokens, the full context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.contract import Completion, FinishReason, Request
from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.autoregressive import finished
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Proposal


@mutant(
    FaultClass.END,
    "stopping.eos",
    id="F01",
    source="huggingface/transformers#47912, 31301, 48981",
    needs=("eos",),
)
class EosMissedInBlock(SpeculativeEngine):
    """EOS is looked for in the last token of a round only."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        return np.where(batch.active, np.minimum(count, batch.limit - batch.length), 0)


@mutant(
    FaultClass.END,
    "stopping.stop",
    id="F03",
    source="sgl-project/sglang#23802",
    needs=("stop",),
    subtle={"tail": 3},
)
class StopSearchedInTail(SpeculativeEngine):
    """A stop sequence is looked for only near the end of the text, however long the block was.

    Attributes
    ----------
    tail : int
        Tokens behind it that it may have and still be found.
    """

    tail = 1

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        kept, whole = super().cut(batch, emitted, count), batch.cut_at_eos(emitted, count)
        return np.where(whole - kept > self.tail, whole, kept)


class _WholeBlock(SpeculativeEngine):
    """Hands out what the last block holds behind the end, if that is of the kind ``ended``."""

    ended: FinishReason

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        self._behind: dict[int, tuple[list[int], list[float]]] = {}
        return super().rounds(requests)

    def logprobs(self, processed: Tensor, batch: Batch, emitted: Tensor) -> Tensor | None:
        self._values = super().logprobs(processed, batch, emitted)
        return self._values

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        kept = super().cut(batch, emitted, count)
        for row in np.flatnonzero(batch.active & (kept < count)):
            rest = slice(int(kept[row]), int(count[row]))
            values = [] if self._values is None else self._values[row, rest].tolist()
            self._behind[int(batch.index[row])] = emitted[row, rest].tolist(), values
        return kept

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        tokens, values = self._behind.get(int(batch.index[row]), ([], []))
        if answer.finish_reason != self.ended:
            return answer
        logprobs = answer.logprobs and [*answer.logprobs, *values]
        return msgspec.structs.replace(answer, tokens=[*answer.tokens, *tokens], logprobs=logprobs)


@mutant(
    FaultClass.END,
    "stopping.stop",
    "streaming.pieces",
    id="F04",
    source="vllm-project/vllm#47616",
    needs=("stop",),
)
class StopCutsStreamOnly(_WholeBlock):
    """The stream is cut at a stop sequence, ids and log probabilities go on to the block's end."""

    ended: FinishReason = "stop"


@mutant(
    FaultClass.END,
    "stopping.length",
    id="F05",
    source="huggingface/transformers#46993, 47195",
)
class LengthNeverBinds(_WholeBlock):
    """K tokens are drafted however few are left, and the block is not cut at max_new_tokens."""

    ended: FinishReason = "length"

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        return super().propose(batch, np.where(batch.active, batch.draft_tokens, 0))


@mutant(
    FaultClass.END,
    "stopping.eos",
    id="F06",
    source="ohdearquant/lattice#289, 287",
    needs=("eos",),
    subtle={"exits": ("bonus",)},
)
class EosLeftOut(SpeculativeEngine):
    """An EOS that is no draft ends the output before it is appended.

    Attributes
    ----------
    exits : tuple of str
        What the EOS is where that happens.
    """

    exits: tuple[str, ...] = ("first", "recovered", "bonus")

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        rounds = answer.rounds or []
        chosen = len(answer.tokens) == sum(entry.accepted + 1 for entry in rounds)
        full = rounds[-1].accepted == rounds[-1].drafted
        role = "first" if len(answer.tokens) == 1 else "bonus" if full else "recovered"
        if answer.finish_reason != "eos" or not chosen or role not in self.exits:
            return answer
        if not batch.requests[row].speculate:
            return answer
        logprobs = answer.logprobs and answer.logprobs[:-1]
        return msgspec.structs.replace(answer, tokens=answer.tokens[:-1], logprobs=logprobs)


@mutant(
    FaultClass.EDGE,
    "stopping.context",
    id="F62",
    source="ggml-org/llama.cpp#10641, 10547",
    subtle={"dropped": 0.125},
)
class ContextOverrun(SpeculativeEngine):
    """K tokens are drafted beyond the end of the context, and the oldest tokens make room.

    Attributes
    ----------
    dropped : float
        Share of the context that is dropped.
    """

    dropped = 0.5

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        return super().propose(batch, np.where(batch.active, batch.draft_tokens, 0))

    def cache(self, capacity: int) -> CachedModel:
        cache = super().cache(capacity)
        seen_from = cache._mask

        def without_the_oldest(position: Tensor) -> Tensor | dict[str, Tensor] | None:
            seen = seen_from(position)
            if not isinstance(seen, Tensor) or seen.dtype is not torch.bool:
                return seen
            full = (position[:, -1] >= cache.positions).view(-1, 1, 1, 1)
            oldest = torch.arange(seen.shape[-1]) < self.dropped * cache.positions
            return seen & ~(full & oldest.to(seen.device))

        cache._mask = without_the_oldest  # type: ignore[method-assign]
        return cache


# --- classics -----------------------------------------------------------------------------------


@mutant(FaultClass.END, "stopping.eos", "stopping.stop")
class AlwaysLength(SpeculativeEngine):
    """The finish reason of a speculative answer is always ``length``."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        if not batch.requests[row].speculate:
            return answer
        return msgspec.structs.replace(answer, finish_reason="length")


@mutant(FaultClass.END, "stopping.priority")
class LengthBeforeStop(SpeculativeEngine):
    """A stop sequence that ends with the last token asked for is reported as ``length``."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer, request = super().completion(batch, row), batch.requests[row]
        full = len(answer.tokens) == request.max_new_tokens and request.speculate
        reason: FinishReason = "length" if full else answer.finish_reason
        return msgspec.structs.replace(answer, finish_reason=reason)


@mutant(FaultClass.END, "stopping.stop", needs=("stop",))
class StopAcrossBlocksMissed(SpeculativeEngine):
    """A stop sequence that begins in one block and ends within the next is not found."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        kept = batch.cut_at_eos(emitted, count)
        for row in np.flatnonzero(batch.active):
            block = emitted[row, : kept[row]].tolist()
            stops = [n for n in range(1, len(block)) if finished(block[:n], batch.requests[row])]
            kept[row] = min([*stops, kept[row]])
        return kept


@mutant(FaultClass.END, "stopping.stop", needs=("stop",))
class StopInPrompt(SpeculativeEngine):
    """A stop sequence may begin in the prompt."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer, request = super().completion(batch, row), batch.requests[row]
        for n in range(1, len(answer.tokens)):
            text = (*request.prompt, *answer.tokens[:n])
            if request.speculate and any(text[-len(stop) :] == stop for stop in request.stop):
                logprobs = answer.logprobs and answer.logprobs[:n]
                return Completion(tokens=answer.tokens[:n], finish_reason="stop", logprobs=logprobs)
        return answer


@mutant(FaultClass.END, "stopping.eos", needs=("eos",))
class OtherEosMissedInBlock(SpeculativeEngine):
    """Of several EOS ids only the first is looked for inside a block."""

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        every, batch._eos = batch._eos, batch._eos[:, :1]
        kept = super().cut(batch, emitted, count)
        batch._eos = every
        return kept


@mutant(FaultClass.END, "stopping.length")
class BonusLostAtLength(SpeculativeEngine):
    """Where a fully accepted block fills max_new_tokens, its bonus token is left out."""

    def completion(self, batch: Batch, row: int) -> Completion:
        answer = super().completion(batch, row)
        last = answer.rounds[-1] if answer.rounds else None
        if answer.finish_reason != "length" or not last or not last.drafted:
            return answer
        if last.accepted < last.drafted:
            return answer
        logprobs = answer.logprobs and answer.logprobs[:-1]
        return msgspec.structs.replace(answer, tokens=answer.tokens[:-1], logprobs=logprobs)


@mutant(FaultClass.END, "stopping.min_new_tokens", needs=("min_new_tokens",))
class MinNewTokensOneShort(SpeculativeEngine):
    """In a block EOS is allowed one token before min_new_tokens are there."""

    def spread(self, batch: Batch, width: int) -> sampling.Parameters:
        parameters = super().spread(batch, width)
        if width == 1:
            return parameters
        return parameters.replaced(min_new_tokens=parameters.min_new_tokens - 1)


@mutant(FaultClass.END, "stopping.min_new_tokens", needs=("min_new_tokens",))
class MinNewTokensByBlock(SpeculativeEngine):
    """All tokens of a block count as if they came first in it: EOS is forbidden for too long."""

    def new_tokens(self, batch: Batch, width: int) -> Tensor:
        return batch.new_tokens().unsqueeze(1).expand(-1, width)
