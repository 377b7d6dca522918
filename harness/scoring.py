"""Teacher forcing: one pass over given outputs gives the law of every one of their tokens.

Batched and uncached. It shares with the reference the definition of a sampling law
(``reference_impl.sampling``), and nothing of its decoding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.contract import Request
from harness.models import ModelPair
from harness.stats.rows import Rows, checked
from reference_impl import sampling
from reference_impl.cache import fit_vocabulary

LOGITS_AT_ONCE = 1 << 26  # elements of one batch of full rows: 256 MB
TOKENS_AT_ONCE = 1 << 17  # of one batch, however small the vocabulary
LAWS_AT_ONCE = 1 << 18  # elements of one chunk of laws, small enough for a cache
NEAR = 1e-3  # nats by which a logit may miss the border of a filter


@dataclass(frozen=True)
class Answer:
    """An output to be scored.

    Attributes
    ----------
    request : Request
    tokens : sequence of int
        What was emitted, at least one id.
    logprobs : sequence of float or None
        The decoder's own.
    earlier : sequence of int
        What an earlier answer to the same request said.
    labels : dict of str to int or sequence of int
        Groups of the whole output, or of each token; -1 for none.
    """

    request: Request
    tokens: Sequence[int]
    logprobs: Sequence[float] | None = None
    earlier: Sequence[int] = ()
    labels: Mapping[str, int | Sequence[int]] = field(default_factory=dict)


class Forced:
    """Outputs of a batch laid out for one pass: which row and position each token's law is at.

    Parameters
    ----------
    requests : sequence of Request
    outputs : sequence of sequence of int
        At least one token each.
    vocab : int
    device : torch.device

    Attributes
    ----------
    of, new : Tensor [n], int64
        For each of the n tokens of all outputs: its output, and how many tokens came before.
    tokens : Tensor [n], int64
    parameters : Parameters
        One row an output.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        outputs: Sequence[Sequence[int]],
        vocab: int,
        device: torch.device,
    ) -> None:
        self.vocab = vocab
        texts = [[*r.prompt, *o[:-1]] for r, o in zip(requests, outputs, strict=True)]
        # What pads a text comes behind it, where a causal model does not see it.
        self.ids = _padded(texts).to(device)
        lengths = [len(o) for o in outputs]
        self.of = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)], device=device)
        self.new = torch.tensor([t for n in lengths for t in range(n)], device=device)
        self.tokens = torch.tensor([t for o in outputs for t in o], device=device)
        ends = torch.tensor([len(r.prompt) - 1 for r in requests], device=device)
        self.first = int(ends.min())
        self._place = ends[self.of] + self.new - self.first
        self.parameters = sampling.Parameters.of(requests, vocab, device)
        self._history: sampling.History | None = None
        if self.parameters.needs_history:
            none: list[tuple[int, ...]] = [()] * len(requests)
            start = sampling.History.of(requests, none, vocab, device)
            self._width = max(lengths)
            self._history = start.after(_padded([list(o[:-1]) for o in outputs]).to(device))

    def logits(self, model: PreTrainedModel) -> Tensor:
        """All logits [B, T, V] that some token's law is made of, in the model's dtype."""
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            kept = torch.arange(self.first, self.ids.shape[1], device=self.ids.device)
            logits = model(input_ids=self.ids, use_cache=False, logits_to_keep=kept).logits
        else:
            logits = model(input_ids=self.ids, use_cache=False).logits[:, self.first :]
        return fit_vocabulary(logits, self.vocab)

    def scores(self, logits: Tensor, cut: slice) -> tuple[Tensor, sampling.Parameters]:
        """Processed logits [m, V], float32, of some of the n tokens, and their parameters."""
        of, new = self.of[cut], self.new[cut]
        rows = self.parameters.rows(of)
        history = self._history.rows(of * self._width + new) if self._history else None
        chosen = logits[of, self._place[cut]].float()
        return sampling.process(chosen, rows, history, new), rows


def _padded(texts: Sequence[Sequence[int]]) -> Tensor:
    ids = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
    return ids


@torch.inference_mode()
def score(
    pair: ModelPair, answers: Sequence[Answer], *, draft: bool = True, margin: float = NEAR
) -> Iterator[Rows]:
    """Laws of every emitted token.

    Parameters
    ----------
    draft : bool
        Whether to give the draft's laws as well.
    margin : float
        A token of probability zero is ``near`` if it were possible had its logit been that much
        larger: at the border of a filter numerical noise can put a token on either side.

    Yields
    ------
    Rows
        At most ``LAWS_AT_ONCE`` probabilities of each model (or one row), shorter texts first.
        No more than ``LOGITS_AT_ONCE`` logits of each model (or those of one text) are held.

    Raises
    ------
    ValueError
        For an output without tokens, tokens outside the vocabulary, or log probabilities or
        labels that are not one a token.
    """
    for answer in answers:
        if not answer.tokens:
            raise ValueError("an empty list of tokens")
        wrong = [t for t in answer.tokens if not 0 <= t < pair.vocab_size]
        if wrong:
            raise ValueError(f"token {wrong[0]} is outside the vocabulary 0..{pair.vocab_size - 1}")
        for name, values in {**answer.labels, "logprobs": answer.logprobs}.items():
            if isinstance(values, Sequence) and len(values) != len(answer.tokens):
                raise ValueError(f"{len(values)} {name} for {len(answer.tokens)} tokens")
    for batch in _batches(answers, pair.vocab_size):
        index = torch.tensor(batch, device=pair.device)
        for rows in _score_batch(pair, [answers[i] for i in batch], draft, margin):
            assert rows.answer is not None
            yield replace(rows, answer=index[rows.answer])


def _batches(answers: Sequence[Answer], vocab: int) -> Iterator[list[int]]:
    """Indices of answers that are scored together, shorter texts first."""
    lengths = [len(a.request.prompt) + len(a.tokens) for a in answers]
    most = min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // vocab)
    batch: list[int] = []
    for i in sorted(range(len(answers)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[i] > most:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _score_batch(
    pair: ModelPair, answers: Sequence[Answer], draft: bool, margin: float
) -> Iterator[Rows]:
    forced = Forced(
        [a.request for a in answers], [a.tokens for a in answers], pair.vocab_size, pair.device
    )
    target = forced.logits(pair.target)
    drafted = forced.logits(pair.draft) if draft else None
    replayed = _joined([_replayed(a) for a in answers], pair.device)
    logprobs = _logprobs(answers, pair.device)
    groups = {
        name: _joined([_labels(a, name) for a in answers], pair.device)
        for name in sorted({name for a in answers for name in a.labels})
    }
    last: Tensor | None = None
    step = max(1, LAWS_AT_ONCE // pair.vocab_size)
    for begin in range(0, len(forced.of), step):
        cut = slice(begin, begin + step)
        scores, parameters = forced.scores(target, cut)
        p = _laws(scores, parameters, "target")
        q = _laws(*forced.scores(drafted, cut), "draft") if drafted is not None else None
        before = torch.cat([p[:1] if last is None else last, p[:-1]])
        opens = (forced.new[cut] == 0).unsqueeze(1)
        last = p[-1:]
        tokens = forced.tokens[cut]
        yield Rows(
            p,
            tokens,
            q,
            previous=torch.where(opens, p, before),
            replayed=replayed[cut],
            own_logprobs=None if logprobs is None else logprobs[cut],
            near=_near(scores, parameters, tokens, p, margin),
            scores=scores,
            parameters=parameters,
            groups={name: labels[cut] for name, labels in groups.items()},
            answer=forced.of[cut],
        )


def _laws(scores: Tensor, parameters: sampling.Parameters, model: str) -> Tensor:
    """Probabilities [m, V], float64: filtered in the precision of the scores, summed in that."""
    if parameters.greedy or parameters.mixed:
        return checked(sampling.normalise(scores, parameters), model)
    law = sampling.warp(scores, parameters).double().softmax(-1)
    if not bool(law[:, 0].isfinite().all()):  # one NaN makes all of its row NaN
        raise ValueError(f"the {model} gives logits that are no numbers")
    return law


def _near(
    scores: Tensor, parameters: sampling.Parameters, tokens: Tensor, p: Tensor, margin: float
) -> Tensor:
    """Which tokens [m] are impossible, and would not be with a logit ``margin`` larger."""
    at = tokens.unsqueeze(1)
    near = p.gather(1, at).squeeze(1) == 0
    if rows := near.nonzero().squeeze(1).tolist():
        margins = torch.full((len(rows), 1), margin, dtype=scores.dtype, device=scores.device)
        raised = scores[rows].scatter_add(1, at[rows], margins)
        law = sampling.normalise(raised, parameters.rows(torch.tensor(rows, device=p.device)))
        near[rows] = law.gather(1, at[rows]).squeeze(1) > 0
    return near


def _replayed(answer: Answer) -> list[int]:
    """What the earlier answer said at each place, -1 after the first at which the two differ."""
    said, same = [], True
    for i, token in enumerate(answer.tokens):
        same = same and i < len(answer.earlier)
        said.append(answer.earlier[i] if same else -1)
        same = same and answer.earlier[i] == token
    return said


def _labels(answer: Answer, name: str) -> Sequence[int]:
    value = answer.labels.get(name, -1)
    return [value] * len(answer.tokens) if isinstance(value, int) else value


def _logprobs(answers: Sequence[Answer], device: torch.device) -> Tensor | None:
    if all(a.logprobs is None for a in answers):
        return None
    given = [a.logprobs or [math.nan] * len(a.tokens) for a in answers]
    return torch.tensor([x for g in given for x in g], dtype=torch.float64, device=device)


def _joined(lists: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    return torch.tensor([x for values in lists for x in values], device=device)
