"""Penalties, bias, forbidden tokens and grammars that are wrong in rows of a block."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from harness.verdict import FaultClass
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants.registry import lookup, mutant
from reference_impl.proposal import Emitted, Proposal
from reference_impl.sampling import History, Parameters
from reference_impl.transfers import to_device

KIND = FaultClass.PROCESSORS
PENALTIES, GRAMMAR = "sampling_params.penalties", "sampling_params.grammar"
ROWS = "sampling_params.rows"


class Judged(SpeculativeEngine):
    """Knows which rows of a block, [B, K + 1], judge a draft.

    The others are the bonus token's, the only one of a row that drafts nothing, or padding.
    """

    def verify(
        self, batch: Batch, target: CachedModel, cached: Ints, proposal: Proposal
    ) -> tuple[Proposal, Tensor]:
        judged, logits = super().verify(batch, target, cached, proposal)
        count = to_device(judged.count, self.device).unsqueeze(1)
        self.judged = torch.arange(logits.shape[1], device=self.device) < count
        return judged, logits

    def where_judged(self, wrong: Tensor, right: Tensor) -> Tensor:
        """``wrong`` [B, K + 1, V] where a draft is judged."""
        return torch.where(self.judged.unsqueeze(2), wrong, right)


class Misread(Judged):
    """Judges drafts by other sampling parameters than the request's."""

    def spread(self, batch: Batch, width: int) -> Parameters:
        right = super().spread(batch, width)
        wrong, judged = self.misread(right), self.judged.view(-1, 1)
        columns = {f.name: (getattr(wrong, f.name), getattr(right, f.name)) for f in fields(right)}
        changed = {
            name: torch.where(judged, *both)
            for name, both in columns.items()
            if isinstance(both[0], Tensor)
        }
        return replace(wrong, **changed)  # type: ignore[arg-type]

    def misread(self, parameters: Parameters) -> Parameters:
        """What stands in their place."""
        raise NotImplementedError


def at_block_start(history: History, proposal: Proposal) -> History:
    """Histories of B * (K + 1) rows that know no draft."""
    rows = torch.arange(len(history.counts), device=history.counts.device)
    return history.rows(rows.repeat_interleave(proposal.tokens.shape[1] + 1))


def with_penalties_of(right: History, wrong: History) -> History:
    """What the penalties look at is another history's; the grammar's state is right."""
    return replace(wrong, automata=right.automata)


@mutant(
    KIND,
    PENALTIES,
    "sampling_params.law[micro-frequency]",
    id="F08",
    source="huggingface/text-generation-inference#1308",
    needs=("penalties",),
)
class FrozenPenalties(SpeculativeEngine):
    """Penalties are the same for all rows of a block: its drafts are not counted."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        return with_penalties_of(right, at_block_start(history, proposal))


@mutant(KIND, PENALTIES, needs=("penalties",))
class PenaltiesOneLate(SpeculativeEngine):
    """Penalties of a row do not see the draft just before it."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        row = torch.arange(len(right.counts), device=self.device)
        late = row % (proposal.tokens.shape[1] + 1) > 0
        return with_penalties_of(right, right.rows(row - late.long()))


@mutant(
    KIND,
    PENALTIES,
    "sampling_params.opposite_penalties",
    "sampling_params.logit_bias",
    GRAMMAR,
    "sampling_params.law[micro-repetition]",
    id="F09",
    source="vllm-project/vllm#18902",
)
class NoProcessors(SpeculativeEngine):
    """With a draft no penalty, bias, forbidden token or grammar is applied at all."""

    def process(self, logits: Tensor, batch: Batch, proposal: Proposal) -> Tensor:
        drafting = to_device(batch.draft_tokens > 0, self.device).view(-1, 1, 1)
        return torch.where(drafting, logits.float(), super().process(logits, batch, proposal))


@mutant(
    KIND,
    "sampling_params.logit_bias",
    "sampling_params.law[micro-T=1.5 min_p=0.25]",
    "sampling_params.law[micro-bias]",
    id="F10",
    source="vllm-project/vllm#42744, 42802",
)
class MinPOfTheBonusOnly(Misread):
    """min_p and logit_bias are applied to the bonus token only."""

    def misread(self, parameters: Parameters) -> Parameters:
        bias = parameters.bias
        return replace(
            parameters,
            min_p=torch.zeros_like(parameters.min_p),
            bias=None if bias is None else torch.zeros_like(bias),
        )


@mutant(
    KIND,
    PENALTIES,
    "sampling_params.law[micro-negative frequency]",
    id="F11",
    source="vllm-project/vllm#33251",
    needs=("penalties",),
)
class LastTokenCountedTwice(SpeculativeEngine):
    """Rows after the first count the token that opens the block once more."""

    def block(self, batch: Batch, proposal: Proposal) -> Tensor:
        block = super().block(batch, proposal)
        self._opening = block[:, 0]
        return block

    def histories(self, history: History, proposal: Proposal) -> History:
        right, width = super().histories(history, proposal), proposal.tokens.shape[1] + 1
        counts = right.counts.view(-1, width, self.vocab).clone()
        counts[:, 1:] += sampling.one_hot(self._opening, self.vocab).unsqueeze(1)
        return replace(right, counts=counts.flatten(0, 1))


@mutant(KIND, PENALTIES, needs=("penalties",))
class PromptCounted(Judged):
    """Presence and frequency penalty of a judged row count the prompt as well."""

    def process(self, logits: Tensor, batch: Batch, proposal: Proposal) -> Tensor:
        self._prompts = torch.stack(
            [torch.bincount(torch.tensor(r.prompt), minlength=self.vocab) for r in batch.requests]
        ).to(self.device)
        return super().process(logits, batch, proposal)

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        extra = self._prompts.repeat_interleave(proposal.tokens.shape[1] + 1, 0)
        return replace(right, counts=right.counts + extra * self.judged.view(-1, 1))


@mutant(
    KIND,
    PENALTIES,
    id="F12",
    source="osaurus-ai/vmlx-swift#357, 361",
    needs=("penalties",),
)
class SharedCounts(SpeculativeEngine):
    """Drafts are recorded in the counts when they are made: rejected ones stay, others twice."""

    accepted_too = True

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        if batch.history is not None:
            proposal = emitted.proposal
            place = torch.arange(proposal.tokens.shape[1], device=self.device)
            count = to_device(proposal.count, self.device).unsqueeze(1)
            first = emitted.accepted.unsqueeze(1) * (not self.accepted_too)
            recorded = (place >= first) & (place < count)
            wrong = batch.history.extended(proposal.tokens, recorded)
            batch.history = replace(batch.history, counts=wrong.counts)
        return super().commit(batch, cached, emitted)


@mutant(KIND, PENALTIES, needs=("penalties",))
class RejectedCounted(SharedCounts):
    """Rejected drafts stay in the counts of the penalties."""

    accepted_too = False


@mutant(
    KIND,
    "sampling_params.min_new_tokens",
    "sampling_params.law[micro-min_new_tokens]",
    id="F13",
    source="vllm-project/vllm#41768, 41758",
    needs=("min_new_tokens", "eos"),
)
class EosMaskedOneRowTooLong(SpeculativeEngine):
    """min_new_tokens forbids EOS for one token too many in every row but the first of a block."""

    def new_tokens(self, batch: Batch, width: int) -> Tensor:
        right = super().new_tokens(batch, width)
        return right - (torch.arange(width, device=self.device) > 0).long()


@mutant(
    KIND,
    ROWS,
    id="F13",
    source="vllm-project/vllm#41768, 41758",
    needs=("penalties", "batch"),
    drafter=lookup,
)
class HistoriesOfDraftingRows(SpeculativeEngine):
    """Histories are built for the rows that draft, and looked up by the number of the request."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right, width = super().histories(history, proposal), proposal.tokens.shape[1] + 1
        drafting = to_device(proposal.count, self.device).nonzero().squeeze(1)
        if not len(drafting):
            return right
        request = torch.arange(len(history.counts), device=self.device)
        taken = drafting[request.clamp(max=len(drafting) - 1)].unsqueeze(1)
        return right.rows((taken * width + torch.arange(width, device=self.device)).flatten())


@mutant(
    KIND,
    GRAMMAR,
    "sampling_params.law[micro-grammar]",
    id="F14",
    source="vllm-project/vllm#44297",
    needs=("grammar",),
)
class FrozenGrammar(SpeculativeEngine):
    """All rows of a block are masked by the grammar's state at its start."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        return replace(right, automata=at_block_start(history, proposal).automata)


@mutant(KIND, GRAMMAR, "sampling_params.law[micro-grammar]", needs=("grammar",))
class BonusWithoutGrammar(Judged):
    """The bonus token of a block is not masked by the grammar."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        if right.automata is None or not proposal.tokens.shape[1]:
            return right
        state = right.automata.state * self.judged.flatten()  # nothing is forbidden in state 0
        return replace(right, automata=replace(right.automata, state=state))


@mutant(
    KIND,
    "sampling_params.grammar_end",
    id="F78",
    source="openvinotoolkit/openvino.genai#4081",
    needs=("grammar", "eos"),
)
class GrammarAskedAfterItsEnd(SpeculativeEngine):
    """The grammar's matcher is asked for rows behind the token that ended it, and aborts."""

    def histories(self, history: History, proposal: Proposal) -> History:
        right = super().histories(history, proposal)
        if right.automata is not None:
            state, following = right.automata.state, right.automata.following
            ended = (state > 0) & (following[state] == 0).all(1)
            in_block = ended.view(-1, proposal.tokens.shape[1] + 1)
            if (in_block & ~in_block[:, :1]).any():
                raise RuntimeError("the matcher has terminated")
        return right
