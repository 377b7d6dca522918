"""A draft that sees another text than was committed: its drafts are right, and seldom accepted.

Whatever it proposes is verified, so that the output stays the target's: the price is speed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramTable
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Drafter, Proposal

SELF, POSITIONS = "acceptance.self_draft", "acceptance.self_draft_positions"
GREEDY, SECOND = "acceptance.greedy_drafts", "cache.second_request"
Drafting = TypeVar("Drafting", bound=type[ModelDrafter])


def wrong_draft(kind: FaultClass, *killed_by: str, **named: Any) -> Callable[[Drafting], Drafting]:
    """Register the engine with a wrong drafter of its own."""

    def register(drafter: Drafting) -> Drafting:
        engine = type(drafter.__name__, (SpeculativeEngine,), {"__doc__": drafter.__doc__})
        made = lambda pair: drafter(pair.draft, pair.vocab_size)  # noqa: E731
        mutant(kind, *killed_by, drafter=made, **named)(engine)
        return drafter

    return register


# --- its cache ------------------------------------------------------------------------------------


@wrong_draft(FaultClass.CACHE, SELF, id="F23", source="lablup/mlxcel#994")
class DraftRewoundTooFar(ModelDrafter):
    """The draft's cache is rewound two tokens too far in every round, and goes on from there."""

    def start(self, batch: Batch, capacity: int) -> None:
        super().start(batch, capacity)
        self._short = np.zeros(len(batch), dtype=np.int64)

    def observe(self, accepted: Ints) -> None:
        super().observe(accepted)
        self._short = self._short + 2  # rejected + 1 instead of rejected - 1

    def _feed(self, ids: Tensor, start: Ints) -> Tensor:
        return super()._feed(ids, np.maximum(start - self._short, 0))

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self._short = self._short[rows.cpu().numpy()]


@wrong_draft(FaultClass.CACHE, SELF, id="F24", source="vllm-project/vllm#9730 (after 5765)")
class BonusTokenUnheard(ModelDrafter):
    """After a block that was accepted whole its last token is fed to the draft for the bonus."""

    def _unseen(self, batch: Batch, missing: Ints) -> Ints:
        ids = super()._unseen(batch, missing)
        if ids.shape[1] > 1 and self._steps > 1:
            ids[missing == 2, 1] = ids[missing == 2, 0]
        return ids


@wrong_draft(FaultClass.CACHE, GREEDY)
class RecoveredTokenUnheard(ModelDrafter):
    """After a rejection the draft is fed the token that was rejected, not the one in its place."""

    def start(self, batch: Batch, capacity: int) -> None:
        super().start(batch, capacity)
        self._own: Ints | None = None

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        self._drafts = proposal.tokens.cpu().numpy()
        return proposal

    def observe(self, accepted: Ints) -> None:
        super().observe(accepted)
        at = np.minimum(accepted, self._drafts.shape[1] - 1)
        self._own = np.take_along_axis(self._drafts, at[:, None], 1)[:, 0]

    def _unseen(self, batch: Batch, missing: Ints) -> Ints:
        ids = super()._unseen(batch, missing)
        if self._own is not None and len(self._own) == len(ids):
            ids[missing == 1, 0] = self._own[missing == 1]
        return ids


@wrong_draft(FaultClass.SPEED, SECOND)
class DraftCacheNotReset(ModelDrafter):
    """What the draft's cache holds of the last request is taken for the new prompt."""

    _slots = 0

    def start(self, batch: Batch, capacity: int) -> None:
        if capacity <= self._slots and len(self._cached) == len(batch):
            self._cached = np.minimum(self._cached, batch.length - 1)
            return
        self._slots = 4 * capacity
        super().start(batch, self._slots)


class StaleTable(NgramTable):
    """Starts once."""

    def start(self, batch: Batch, capacity: int) -> None:
        if len(getattr(self, "_tables", ())) != len(batch):
            super().start(batch, capacity)

    def lookup(self, tokens: Ints, length: Ints) -> Ints:
        return np.minimum(super().lookup(tokens, length), length)  # it may point beyond the text


@mutant(
    FaultClass.SPEED,
    SECOND,
    id="F74",
    source="ggml-org/llama.cpp#27852",
    drafter=lambda pair: StaleTable(),
)
class TableNotReset(SpeculativeEngine):
    """The n-gram table still holds the last request, and a shorter new one is never read."""


# --- what it is fed -------------------------------------------------------------------------------


class Shifted(CachedModel):
    """Tells the model positions that are too high."""

    shift = 0

    def position_ids(self, position: Tensor) -> Tensor:
        return position + self.shift


@wrong_draft(
    FaultClass.POSITIONS, SELF, POSITIONS, id="F61", source="huggingface/transformers#46936"
)
class DraftPositionsJump(ModelDrafter):
    """Behind the prompt the draft counts from the length of another text than its own."""

    def start(self, batch: Batch, capacity: int) -> None:
        model = Shifted(self.draft, capacity, self.vocab)
        model.prefill(batch.texts_but_last())
        model.shift = 3
        self._model, self._cached = model, batch.length - 1


@wrong_draft(FaultClass.POSITIONS, POSITIONS)
class DraftPositionsShifted(ModelDrafter):
    """All positions of the draft are one too high, which only absolute ones show."""

    def start(self, batch: Batch, capacity: int) -> None:
        model = Shifted(self.draft, capacity, self.vocab)
        model.shift = 1
        model.prefill(batch.texts_but_last())
        self._model, self._cached = model, batch.length - 1


def without_residual(pair: ModelPair) -> Drafter:
    """The pair's draft; its last layer gives what it adds, without what it adds it to."""
    draft = copy.deepcopy(pair.draft)
    base = draft.base_model
    layers = base.layers if hasattr(base, "layers") else base.h
    layers[-1].register_forward_hook(_without_input)
    return ModelDrafter(draft, pair.vocab_size)


def _without_input(_: Any, given: tuple[Any, ...], output: Any) -> Any:
    if isinstance(output, tuple):
        return (output[0] - given[0], *output[1:])
    return output - given[0]


@mutant(
    FaultClass.SPEED, SELF, id="F75", source="vllm-project/vllm#14464", drafter=without_residual
)
class DraftWithoutResidual(SpeculativeEngine):
    """The draft is given a hidden state without its residual."""
