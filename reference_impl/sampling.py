"""Logits, sampling parameters and history -> the law of the next token.

Works on a batch of rows, each with its own parameters. Same results and same order as the
logits processors of transformers' ``generate`` (property-tested against them); presence and
frequency penalties, which transformers lacks, are OpenAI's and vLLM's: subtracted from the
logits, counted over the output only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from harness.contract import Request, Sampling
from reference_impl.grammar import Automata

_MASKED = -torch.inf


@dataclass
class History:
    """What penalties and grammars look at, one row per law.

    Attributes
    ----------
    seen : Tensor [R, V], bool
        Tokens of prompt and output.
    counts : Tensor [R, V], float
        Occurrences in the output alone.
    automata : Automata or None
        None where no row has a grammar.
    """

    seen: Tensor
    counts: Tensor
    automata: Automata | None = None

    @classmethod
    def of(
        cls,
        requests: Sequence[Request],
        outputs: Sequence[Sequence[int]],
        vocab: int,
        device: torch.device | str = "cpu",
    ) -> History:
        """Go through the tokens of each row's prompt and output."""
        counts = torch.zeros(len(requests), vocab)
        seen = torch.zeros(len(requests), vocab, dtype=torch.bool)
        for row, (request, output) in enumerate(zip(requests, outputs, strict=True)):
            seen[row, list(request.prompt)] = True
            if output:
                counts[row] = torch.bincount(torch.tensor(output), minlength=vocab)
        grammars = [request.sampling.grammar for request in requests]
        return cls(
            (seen | (counts > 0)).to(device),
            counts.to(device),
            Automata.of(grammars, outputs, vocab, device),
        )

    def after(self, drafts: Tensor) -> History:
        """Histories before and after each drafted token.

        Parameters
        ----------
        drafts : Tensor [B, K], int64
            Row b continues row b of this history.

        Returns
        -------
        History of B * (K + 1) rows
            Row b * (K + 1) + i has the first i drafts in it.
        """
        rows, width = drafts.shape
        vocab = self.counts.shape[1]
        added = torch.zeros(rows, width + 1, vocab, device=self.counts.device)
        added[:, 1:].scatter_(2, drafts.unsqueeze(2), 1.0)
        added = added.cumsum(1)
        counts = (self.counts.unsqueeze(1) + added).flatten(0, 1)
        seen = (self.seen.unsqueeze(1) | (added > 0)).flatten(0, 1)
        return History(seen, counts, self.automata and self.automata.after(drafts))

    def extended(self, tokens: Tensor, valid: Tensor) -> History:
        """Histories with ``tokens`` [R, T] added where ``valid`` [R, T]."""
        counts = self.counts.scatter_add(1, tokens, valid.to(self.counts.dtype))
        automata = self.automata and self.automata.extended(tokens, valid)
        return History(self.seen | (counts > 0), counts, automata)

    def rows(self, index: Tensor) -> History:
        """Rows in another order, dropped or repeated."""
        automata = self.automata and self.automata.rows(index)
        return History(self.seen[index], self.counts[index], automata)


@dataclass
class Parameters:
    """Sampling parameters as columns, one row per law.

    Attributes
    ----------
    temperature, top_p, min_p, repetition, presence, frequency : Tensor [R, 1], float64
        As exact as Python's numbers; rounded only where they meet the logits.
    top_k : Tensor [R, 1], int64
        Already clipped to 1..V.
    bias : Tensor [R, V] or None
        None where no row has one; likewise:
    eos : Tensor [R, V], bool, or None
        Tokens that min_new_tokens forbids.
    min_new_tokens : Tensor [R, 1], int64
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor
    min_new_tokens: Tensor
    bias: Tensor | None
    eos: Tensor | None
    greedy: bool  # every row is
    mixed: bool  # some rows are, some are not
    filtered: bool  # some row has a top_k, top_p or min_p
    needs_history: bool  # some row has a penalty or a grammar

    @classmethod
    def of(
        cls, requests: Sequence[Request], vocab: int, device: torch.device | str = "cpu"
    ) -> Parameters:
        """Collect the parameters of a batch of requests over a vocabulary of ``vocab`` ids."""
        sampling = [request.sampling for request in requests]

        def column(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.tensor([[getattr(s, name)] for s in sampling], dtype=dtype, device=device)

        top_k = column("top_k", torch.int64)
        greedy = [s.greedy for s in sampling]
        return cls(
            temperature=column("temperature"),
            top_k=torch.where(top_k == 0, vocab, top_k).clamp(max=vocab),
            top_p=column("top_p"),
            min_p=column("min_p"),
            repetition=column("repetition_penalty"),
            presence=column("presence_penalty"),
            frequency=column("frequency_penalty"),
            min_new_tokens=column("min_new_tokens", torch.int64),
            bias=_bias(sampling, vocab, device),
            eos=_forbidden(requests, vocab, device),
            greedy=all(greedy),
            mixed=any(greedy) and not all(greedy),
            filtered=any(s.top_k or s.top_p < 1 or s.min_p for s in sampling if not s.greedy),
            needs_history=any(s.needs_history for s in sampling),
        )

    def rows(self, index: Tensor) -> Parameters:
        """Rows in another order, dropped or repeated."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        picked: dict[str, Any] = {k: v[index] for k, v in columns.items() if isinstance(v, Tensor)}
        return replace(self, **picked)

    def clipped(self, vocab: int) -> Parameters:
        """The same for rows of the ``vocab`` likeliest tokens, in which bias is no more needed."""
        return replace(self, top_k=self.top_k.clamp(max=vocab), bias=None, eos=None)

    def replaced(self, **columns: Tensor) -> Parameters:
        """Other columns in place of some: what a decoder that misread them would apply."""
        changes: dict[str, Any] = dict(columns)
        if not columns.keys().isdisjoint({"top_k", "top_p", "min_p"}):
            changes["filtered"] = True
        return replace(self, **changes)


def _bias(sampling: Sequence[Sampling], vocab: int, device: torch.device | str) -> Tensor | None:
    if not any(s.logit_bias for s in sampling):
        return None
    bias = torch.zeros(len(sampling), vocab)
    for row, s in enumerate(sampling):
        for token, value in s.logit_bias.items():
            bias[row, token] = value
    return bias.to(device)


def _forbidden(
    requests: Sequence[Request], vocab: int, device: torch.device | str
) -> Tensor | None:
    if not any(r.sampling.min_new_tokens and r.eos for r in requests):
        return None
    eos = torch.zeros(len(requests), vocab, dtype=torch.bool)
    for row, request in enumerate(requests):
        eos[row, list(request.eos)] = True
    return eos.to(device)


def process(
    logits: Tensor, parameters: Parameters, history: History | None, new_tokens: Tensor
) -> Tensor:
    """Apply everything that comes before the temperature.

    Parameters
    ----------
    logits : Tensor [R, V], float
    parameters, history : one row per row of ``logits``
        ``history`` is read only where a row has a penalty or a grammar.
    new_tokens : Tensor [R], int64
        Length of the output before this token.

    Returns
    -------
    Tensor [R, V], float
        Their argmax is the greedy token.
    """
    if parameters.bias is not None:
        logits = logits + parameters.bias
    if parameters.needs_history:
        assert history is not None
        repetition = parameters.repetition.to(logits.dtype)
        repeated = torch.where(logits < 0, logits * repetition, logits / repetition)
        logits = torch.where(history.seen, repeated, logits)
        logits = logits - parameters.presence.to(logits.dtype) * (history.counts > 0)
        logits = logits - parameters.frequency.to(logits.dtype) * history.counts
    if parameters.eos is not None:
        early = new_tokens.unsqueeze(1) < parameters.min_new_tokens
        logits = logits.masked_fill(parameters.eos & early, _MASKED)
    if history is not None and history.automata is not None:
        logits = history.automata.forbid(logits)
    return logits


def warp(logits: Tensor, parameters: Parameters) -> Tensor:
    """Temperature, then the filters: top_k, top_p, min_p, each on what the one before left.

    Rows of temperature 0 come back as they went in: their filters cannot move the argmax.
    """
    greedy = parameters.temperature == 0
    scores = logits / torch.where(greedy, 1.0, parameters.temperature).to(logits.dtype)
    if not parameters.filtered:
        return scores
    ordered = scores.sort(dim=-1, descending=True).values
    kth = ordered.gather(1, parameters.top_k - 1)
    scores = scores.masked_fill(scores < kth, _MASKED)  # ties with the k-th stay, as there
    scores = _top_p(scores, parameters.top_p)
    likely = scores.softmax(-1)
    unlikely = likely < parameters.min_p.to(likely.dtype) * likely.amax(-1, keepdim=True)
    scores = scores.masked_fill(unlikely, _MASKED)
    return torch.where(greedy, logits, scores)


def _top_p(scores: Tensor, top_p: Tensor) -> Tensor:
    """Smallest set of likeliest tokens with mass >= top_p (Holtzman et al. 2020)."""
    ordered, order = scores.sort(dim=-1)
    dropped = ordered.softmax(-1).cumsum(-1) <= (1 - top_p).to(scores.dtype)
    dropped[:, -1] = False
    dropped &= top_p < 1  # rounding of the sum must not drop anything where nothing was asked
    return scores.masked_fill(dropped.scatter(1, order, dropped), _MASKED)


def normalise(processed: Tensor, parameters: Parameters) -> Tensor:
    """Probabilities [R, V] from processed logits; a point mass on the argmax for greedy rows."""
    if parameters.greedy:
        return one_hot(processed.argmax(-1), processed.shape[-1])
    probabilities = warp(processed, parameters).softmax(-1)
    if parameters.mixed:
        best = one_hot(processed.argmax(-1), processed.shape[-1])
        probabilities = torch.where(parameters.temperature == 0, best, probabilities)
    return probabilities


def one_hot(tokens: Tensor, vocab: int) -> Tensor:
    """Point masses [..., V], float32, at ``tokens`` [...]."""
    mass = torch.zeros(*tokens.shape, vocab, device=tokens.device)
    return mass.scatter_(-1, tokens.unsqueeze(-1), 1.0)


def next_token_law(logits: Tensor, request: Request, output: Sequence[int]) -> Tensor:
    """The law of one request's next token.

    Parameters
    ----------
    logits : Tensor [V], float
        The model's, after ``request.prompt`` and ``output``.
    request : Request
    output : sequence of int
        Tokens generated so far.

    Returns
    -------
    Tensor [V], float
        In the dtype of ``logits`` if that is float64, else float32.
    """
    vocab = logits.shape[-1]
    parameters = Parameters.of([request], vocab, logits.device)
    history = None
    if parameters.needs_history:
        history = History.of([request], [output], vocab, logits.device)
    new_tokens = torch.tensor([len(output)], device=logits.device)
    logits = logits if logits.dtype is torch.float64 else logits.float()
    return normalise(process(logits.unsqueeze(0), parameters, history, new_tokens), parameters)[0]
