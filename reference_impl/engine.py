"""Speculative decoding, the fast path: batched, cached, over any transformers causal LM.

The same algorithm as ``speculative.py``, and held to it: greedy results are identical, sampled
ones have the same law. One round for all rows at once:

    propose   the drafter gives up to K tokens a row
    verify    one target call over [last token, d_1 .. d_K] gives the laws of K + 1 positions
    accept    the longest prefix whose coins u < p(d) / q(d) all fall well
    choose    one more token a row, from (p - q)+ at the first position that was not accepted
    commit    cut at EOS, stop sequence or length; roll the cached rows back to what was kept

The bonus token is no special case: with no proposal left to be rejected q is zero, and (p - 0)+
is p. The prompt is fed once, all but its last token, which opens the first block like any other.

The steps are methods: a known-wrong decoder overrides one of them (``reference_impl.mutants``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.contract import Completion, Request, Round
from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters.features import reader
from reference_impl.packed import with_packed_linears
from reference_impl.proposal import Drafter, Emitted, Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.recurrent import cached_model, position_bytes
from reference_impl.speculative import residual
from reference_impl.transfers import to_device

CACHE_BUDGET = 2 << 30  # bytes of keys and values, or states, that one batch may fill


class SpeculativeEngine:
    """A decoder: ``generate`` takes requests, and returns completions in their order.

    Parameters
    ----------
    target : PreTrainedModel
    drafter : Drafter or None
        None decodes plainly.
    vocab : int, optional
        Token ids in use; the target's, if not given.
    max_batch : int, optional
        Rows decoded together; by default as many as fit ``CACHE_BUDGET``.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        drafter: Drafter | None,
        vocab: int | None = None,
        max_batch: int | None = None,
    ) -> None:
        self.target = with_packed_linears(target.eval())
        self.drafter = drafter
        self.reader = reader(drafter)
        self.vocab = vocab or int(target.config.get_text_config().vocab_size)
        self.max_batch = max_batch
        self.device = next(target.parameters()).device
        # Elsewhere it takes waits for the device to tell the parts of a round: only when asked for.
        self.synchronise: Callable[[], None] | None = None
        if self.device.type == "cpu":
            self.synchronise = lambda: None

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode every request."""
        completions: list[Completion] = []
        step = self.max_batch or self._rows_that_fit(requests)
        for first in range(0, len(requests), step):
            completions += self._generate_batch(requests[first : first + step])
        return completions

    @torch.inference_mode()
    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request; yields the new tokens of each round."""
        sent = 0
        for batch in self.rounds([request]):
            output = batch.output(0)
            yield output[sent:]
            sent = len(output)

    def _rows_that_fit(self, requests: Sequence[Request]) -> int:
        longest = max((len(r.prompt) + r.max_new_tokens for r in requests), default=1)
        return max(1, CACHE_BUDGET // (longest * position_bytes(self.target)))

    def _generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        done: dict[int, Completion] = {}
        for batch in self.rounds(requests):
            for row in np.flatnonzero(~batch.active):
                if (index := int(batch.index[row])) not in done:
                    done[index] = self.completion(batch, int(row))
        return [done[i] for i in range(len(requests))]

    def rounds(self, requests: Sequence[Request]) -> Iterator[Batch]:
        """Decode requests together; yields the batch after each round, with what ended in it."""
        batch = Batch(requests, self.vocab, self.device, self.synchronise)
        capacity = self.capacity(batch)
        target = self.cache(capacity)
        if self.reader and batch.draft_tokens.any():
            target.depths = self.reader.depths
        with batch.clock.part("prompt"):
            cached = self.prefill(batch, target)
        if self.drafter and batch.draft_tokens.any():
            with batch.clock.part("draft"):
                self.drafter.start(batch, capacity)
            self.show(target, cached * 0)
        while True:
            cached = self.round(batch, target, cached)
            yield batch
            if not batch.active.any():
                return
            if batch.active.sum() * 2 > len(batch):
                continue  # compact when half of the rows have ended: copying them costs too
            rows = np.flatnonzero(batch.active)
            batch.select(rows)
            cached = cached[rows]
            on_device = to_device(rows, self.device)
            target.select(on_device)
            if self.drafter and batch.draft_tokens.any():
                self.drafter.select(on_device)

    def cache(self, capacity: int) -> CachedModel:
        """The target with an empty cache."""
        return cached_model(self.target, capacity, self.vocab)

    def prefill(self, batch: Batch, target: CachedModel) -> Ints:
        """Feed the prompts, all but their last tokens; returns the cached length of every row."""
        target.prefill(batch.texts_but_last())
        batch.fed(batch.prompt_length - 1)
        return batch.prompt_length - 1

    def capacity(self, batch: Batch) -> int:
        """Cache slots of a row: its longest text, and a block of which nothing is kept."""
        return batch.tokens.shape[1] + int(batch.draft_tokens.max()) + 1

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        """Run one round; returns the valid length of every cached row."""
        with batch.clock.part("draft"):
            drafted = self.propose(batch, batch.room())
        with batch.clock.part("verify"):
            proposal, logits = self.verify(batch, target, cached, drafted)
        batch.fed(proposal.count + 1)
        processed = self.process(logits, batch, proposal)

        count = to_device(proposal.count, self.device)
        u = self.coins(batch, count + 1, proposal.tokens.shape[1] + 1)
        if batch.parameters.greedy:
            accepted, chosen = self.matched(self.best(processed), proposal, count, u)
        else:
            accepted, chosen = self.judge(self.law(processed, batch), proposal, count, u)
        emitted = self.emit(proposal, accepted, chosen, count)
        logprobs = self.logprobs(processed, batch, emitted)
        return self.commit(batch, cached, Emitted(proposal, accepted, emitted, logprobs))

    # The steps, in their order. Shapes: B rows, K drafted tokens, V vocabulary.

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Ask the drafter for up to ``count`` [B] tokens."""
        if self.drafter is None or not count.any():
            return Proposal(
                torch.empty(len(batch), 0, dtype=torch.int64, device=self.device), count * 0
            )
        return self.drafter.propose(batch, count)

    def verify(
        self, batch: Batch, target: CachedModel, cached: Ints, proposal: Proposal
    ) -> tuple[Proposal, Tensor]:
        """The drafts that are judged, and the logits [B, K + 1, V] that judge them."""
        logits = target.forward(self.block(batch, proposal), cached)
        self.show(target, cached)
        return proposal, self.rows(logits)

    def show(self, target: CachedModel, start: Ints) -> None:
        """Let a drafter that reads them see the states of the tokens from ``start`` [B] on."""
        if self.reader and target.features is not None:
            self.reader.see(target.features, start)

    def block(self, batch: Batch, proposal: Proposal) -> Tensor:
        """What the target is fed, [B, K + 1]: the last token of every row, and its drafts."""
        last = to_device(batch.tokens_from(batch.length - 1, 1), self.device)
        return torch.cat([last, proposal.tokens], 1)

    def rows(self, logits: Tensor) -> Tensor:
        """Logits [B, K + 1, V]: row i follows the i-th drafted token."""
        return logits

    def process(self, logits: Tensor, batch: Batch, proposal: Proposal) -> Tensor:
        """Penalties, bias and forbidden tokens, each row with the history of its own prefix."""
        rows, width, vocab = logits.shape
        parameters = self.spread(batch, width)
        history = self.histories(batch.history, proposal) if batch.history else None
        new_tokens = self.new_tokens(batch, width).flatten()
        flat = sampling.process(logits.reshape(-1, vocab).float(), parameters, history, new_tokens)
        return flat.view(rows, width, vocab)

    def histories(self, history: sampling.History, proposal: Proposal) -> sampling.History:
        """What every row of the block has before it, B * (K + 1) rows."""
        return history.after(proposal.tokens)

    def new_tokens(self, batch: Batch, width: int) -> Tensor:
        """How much output every row of the block has before it, [B, K + 1]."""
        return batch.new_tokens().unsqueeze(1) + torch.arange(width, device=self.device)

    def spread(self, batch: Batch, width: int) -> sampling.Parameters:
        """Each row's parameters, repeated for the ``width`` positions of its block."""
        if width == 1:
            return batch.parameters
        row = torch.arange(len(batch), device=self.device)
        return batch.parameters.rows(row.repeat_interleave(width))

    def best(self, processed: Tensor) -> Tensor:
        """The target's own tokens, [B, K + 1], where all rows are greedy."""
        return processed.argmax(-1)

    def law(self, processed: Tensor, batch: Batch) -> Tensor:
        """The target's laws p, [B, K + 1, V]."""
        rows, width, vocab = processed.shape
        flat = sampling.normalise(processed.view(-1, vocab), self.spread(batch, width))
        return flat.view(rows, width, vocab)

    def coins(self, batch: Batch, used: Tensor, most: int) -> Tensor:
        """Uniforms [B, most]: one for each draft, then one for the token after the accepted ones.

        A row uses the first ``used`` [B] of its own.
        """
        return batch.streams.uniform(most, used=used)

    def matched(
        self, best: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Where all rows are greedy: length of the accepted prefix, and the token after it, [B]."""
        p_drafts = (best[:, :-1] == proposal.tokens).double()
        accepted = self.accepted(p_drafts, torch.ones_like(p_drafts), u[:, :-1], count)
        return accepted, best.gather(1, accepted.unsqueeze(1)).squeeze(1)

    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Length of the accepted prefix, and the token after it, [B] each.

        Parameters
        ----------
        p : Tensor [B, K + 1, V]
            The target's laws.
        proposal : Proposal
        count : Tensor [B], int64
            Drafts of each row.
        u : Tensor [B, K + 1], float64
            Coins: one a draft, and one for the token after the accepted ones, at index ``count``.
        """
        p_drafts = p[:, :-1].gather(2, proposal.tokens.unsqueeze(2)).squeeze(2)
        accepted = self.accepted(p_drafts, self.q_of_drafts(proposal), u[:, :-1], count)
        row = torch.arange(len(p), device=self.device)
        p_next, q_next = p[row, accepted], self.q_rejected(proposal, accepted, count)
        chosen = self.choose(p_next, q_next, u.gather(1, count.unsqueeze(1)).squeeze(1))
        return accepted, chosen

    def q_of_drafts(self, proposal: Proposal) -> Tensor:
        """q(d) of every drafted token, [B, K]."""
        if proposal.q is None:
            return torch.ones_like(proposal.tokens, dtype=torch.float32)
        return proposal.q.gather(2, proposal.tokens.unsqueeze(2)).squeeze(2)

    def accepted(self, p: Tensor, q: Tensor, u: Tensor, count: Tensor) -> Tensor:
        """Length of the accepted prefix, [B], from p(d), q(d) and one coin for each draft."""
        kept = self.accept(p, q, u)
        kept &= torch.arange(p.shape[1], device=self.device) < count.unsqueeze(1)
        return kept.long().cumprod(1).sum(1)

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        """u < p(d) / q(d), [B, K], without dividing."""
        return u * q < p

    def q_rejected(self, proposal: Proposal, accepted: Tensor, count: Tensor) -> Tensor:
        """The law [B, V] of the first rejected draft; zero where none was rejected."""
        if not proposal.tokens.shape[1]:
            return torch.zeros(len(accepted), self.vocab, device=self.device)
        row = torch.arange(len(accepted), device=self.device)
        at = accepted.clamp(max=proposal.tokens.shape[1] - 1)
        if proposal.q is None:
            q = sampling.one_hot(proposal.tokens[row, at], self.vocab)
        else:
            q = proposal.q[row, at]
        return q * (accepted < count).unsqueeze(1)

    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        """Draw the token after the accepted ones from (p - q)+, [B]."""
        return inverse_cdf(residual(p, q), u)

    def emit(self, proposal: Proposal, accepted: Tensor, chosen: Tensor, count: Tensor) -> Tensor:
        """Accepted tokens followed by the chosen one, [B, K + 1], padded with anything."""
        padded = torch.cat([proposal.tokens, chosen.unsqueeze(1)], 1)
        return padded.scatter(1, accepted.unsqueeze(1), chosen.unsqueeze(1))

    def logprobs(self, processed: Tensor, batch: Batch, emitted: Tensor) -> Tensor | None:
        """Log probability of every emitted token, [B, K + 1]; at temperature 1 for greedy rows."""
        if not any(r.logprobs for r in batch.requests):
            return None
        rows, width, vocab = processed.shape
        scores = sampling.warp(processed.view(-1, vocab), self.spread(batch, width))
        logs = scores.log_softmax(-1).view(rows, width, vocab)
        return logs.gather(2, emitted.unsqueeze(2)).squeeze(2)

    def commit(self, batch: Batch, cached: Ints, emitted: Emitted) -> Ints:
        """Append what is kept, finish rows, roll back; the round's only wait for the device."""
        accepts, tokens, values = emitted.fetched()
        kept = self.cut(batch, tokens, accepts + 1)
        for row in np.flatnonzero(batch.active):
            output = batch.outputs[row]
            output.rounds.append(Round(int(emitted.proposal.count[row]), int(accepts[row])))
            if values is not None:
                output.logprobs += values[row, : kept[row]].tolist()
        batch.append(tokens, kept)
        batch.finish()
        if self.drafter and emitted.proposal.tokens.shape[1]:
            self.drafter.observe(accepts)
        return self.rollback(cached + tokens.shape[1], batch.length - 1)

    def cut(self, batch: Batch, emitted: Ints, count: Ints) -> Ints:
        """How many of the round's tokens to keep, [B]."""
        return batch.cut(emitted, count)

    def rollback(self, fed: Ints, committed: Ints) -> Ints:
        """Valid length of the cached rows, [B], where ``fed`` tokens are there.

        All committed tokens but the last, which opens the next block.
        """
        return np.minimum(fed, committed)

    def completion(self, batch: Batch, row: int) -> Completion:
        """The answer of a row that has ended."""
        return batch.completion(row)
