"""A draft that is wider than the vocabulary."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import mutant
from reference_impl.proposal import Drafter, Proposal


class Wide(ModelDrafter):
    """Proposes any column that the draft has."""

    def _draw(
        self, logits: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        self._padding = logits[:, self.tokens :]
        return super()._draw(logits[:, : self.tokens], batch, drafts % self.tokens, u)

    def _pick(
        self, processed: Tensor, batch: Batch, drafts: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        return super()._pick(torch.cat([processed, self._padding], 1), batch, drafts, u)

    tokens = 0  # ids that mean one


def wide(pair: ModelPair) -> Drafter:
    """The pair's draft, padding and all."""
    drafter = Wide(pair.draft, int(pair.draft.config.get_text_config().vocab_size))
    drafter.tokens = pair.vocab_size
    return drafter


@mutant(
    FaultClass.VOCABULARY,
    "vocabulary.padding",
    id="F63",
    source="vllm-project/vllm#7218 (13849, 5203)",
    drafter=wide,
)
class PaddingProposed(SpeculativeEngine):
    """A padding column is proposed as an id, and judged as the token that it is congruent to."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        self._wide = super().propose(batch, count)
        tokens, q = self._wide.tokens % self.vocab, self._wide.q
        return replace(self._wide, tokens=tokens, q=None if q is None else q[..., : self.vocab])

    def block(self, batch: Batch, proposal: Proposal) -> Tensor:
        return super().block(batch, proposal) % self.vocab

    def q_of_drafts(self, proposal: Proposal) -> Tensor:
        return super().q_of_drafts(self._wide)

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        return super().emit(self._wide, accepted, chosen, count)
