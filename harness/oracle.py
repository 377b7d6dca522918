"""The target's exact law: along a given output, and jointly over the next few tokens.

``score`` gives the laws of many outputs in batches (``harness.scoring``), ``laws_along`` those of
one, ``joint_law`` those of every output that there can be.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from harness.contract import Request
from harness.models import ModelPair
from harness.scoring import NEAR as NEAR
from harness.scoring import Answer as Answer
from harness.scoring import Forced
from harness.scoring import score as score
from reference_impl import sampling
from reference_impl.cache import cache_argument, fit_vocabulary
from reference_impl.recurrent import cached_model, is_recurrent

ENUMERABLE = 300_000  # cells of a joint law that we are willing to compute
PREFIXES_AT_ONCE = 2048  # of a forward pass


@torch.inference_mode()
def laws_along(
    model: PreTrainedModel, request: Request, output: Sequence[int], vocab: int
) -> tuple[Tensor, Tensor]:
    """Score one output in one pass.

    Parameters
    ----------
    model : PreTrainedModel
        The target, or the draft.
    output : sequence of int, length n
    vocab : int

    Returns
    -------
    scores : Tensor [n, vocab], float32
        Logits with penalties, bias and forbidden tokens applied: a greedy token is their argmax.
    laws : Tensor [n, vocab], float32
        Law of ``output[i]`` given everything before it.
    """
    forced = Forced([request], [output], vocab, next(model.parameters()).device)
    scores, parameters = forced.scores(forced.logits(model), slice(None))
    return scores, sampling.normalise(scores, parameters)


@torch.inference_mode()
def joint_law(model: PreTrainedModel, request: Request, tokens: int, vocab: int) -> Tensor:
    """Law of each of the next ``tokens`` tokens, given every possible output before it.

    Returns
    -------
    Tensor [vocab ** (tokens - 1), tokens, vocab], float64
        Row r, position i: the law of token i where the output before it is the first i digits
        of r in base ``vocab``. ``joint`` multiplies them.

    Raises
    ------
    ValueError
        If there are more than ``ENUMERABLE`` joint outcomes.
    """
    if vocab**tokens > ENUMERABLE:
        raise ValueError(f"{vocab}^{tokens} outcomes are too many to enumerate")
    outputs = prefixes(tokens, vocab)
    logits = _logits(model, request.prompt, tokens, vocab)
    parameters = sampling.Parameters.of([request], vocab)
    history = None
    if parameters.needs_history:
        start = sampling.History.of([request], [()], vocab)
        same = torch.zeros(len(outputs), dtype=torch.int64)
        history = start.rows(same).after(outputs)
    new_tokens = torch.arange(tokens).repeat(len(outputs))
    rows = parameters.rows(torch.zeros_like(new_tokens))
    scores = sampling.process(logits.flatten(0, 1), rows, history, new_tokens)
    return sampling.normalise(scores, rows).double().view(logits.shape)


@functools.lru_cache(maxsize=4)
def _logits(model: PreTrainedModel, prompt: tuple[int, ...], tokens: int, vocab: int) -> Tensor:
    """Logits [vocab ** (tokens - 1), tokens, vocab] after every output.

    Kept, because they are the same whatever temperature and filters make of them.
    """
    logits = []
    for part in torch.split(prefixes(tokens, vocab), PREFIXES_AT_ONCE):
        ids = torch.cat([torch.tensor([prompt]).expand(len(part), -1), part], 1)
        output = model(input_ids=ids.to(model.device), use_cache=False).logits[:, -tokens:]
        logits.append(fit_vocabulary(output, vocab).float().cpu())
    return torch.cat(logits)


def prefixes(tokens: int, vocab: int) -> Tensor:
    """All outputs of ``tokens - 1`` ids, [vocab ** (tokens - 1), tokens - 1], counting upwards."""
    if tokens == 1:
        return torch.empty(1, 0, dtype=torch.int64)
    return torch.cartesian_prod(*[torch.arange(vocab)] * (tokens - 1)).view(-1, tokens - 1)


def joint(conditional: Tensor) -> Tensor:
    """Multiply conditional laws [R, n, V], as ``joint_law`` gives them, into one [V ** n]."""
    rows, tokens, vocab = conditional.shape
    before = prefixes(tokens, vocab)
    weight = torch.ones(rows, dtype=torch.float64)
    for i in range(tokens - 1):
        weight *= conditional[torch.arange(rows), i, before[:, i]]
    return (weight.unsqueeze(1) * conditional[:, -1]).flatten()


@dataclass(frozen=True)
class Divergence:
    """A token that is not the argmax of the target after the tokens before it.

    Attributes
    ----------
    position : int
        Index in the output.
    expected, got : int
        The target's argmax, and what was emitted.
    gap : float
        Logit of ``expected`` minus logit of ``got``.
    """

    position: int
    expected: int
    got: int
    gap: float


def greedy_divergences(
    pair: ModelPair, request: Request, output: Sequence[int]
) -> list[Divergence]:
    """All tokens of a greedy output that are not the target's argmax after those before them.

    There are none exactly if the output is what plain decoding gives: each token is then the
    argmax of a prefix that consists of argmaxes itself.
    """
    scores, _ = laws_along(pair.target, request, output, pair.vocab_size)
    found = []
    for position, (expected, got) in enumerate(
        zip(scores.argmax(-1).tolist(), output, strict=True)
    ):
        if expected != got:
            row = scores[position]
            found.append(Divergence(position, expected, got, float(row[expected] - row[got])))
    return found


@torch.inference_mode()
def noise(pair: ModelPair, prompt: Sequence[int], tokens: int = 48) -> float:
    """How far the gap of the two best logits moves when a text is scored whole or in blocks.

    Floating point addition is not associative: a target that scores several positions in one
    call gives logits that differ in their last digits from those of one position a call. The
    largest change over all positions of a greedy text, cached in blocks of 1 and of 5 tokens.
    Not of all logits: those of unlikely tokens move more, and decide nothing. Tokens that tie
    exactly however they are computed do not part: between them there is no noise.
    """
    text = [*prompt, *greedy_path(pair, prompt, tokens)]
    ids = torch.tensor([text], device=pair.device)
    whole = pair.target(input_ids=ids, use_cache=False).logits[0, :, : pair.vocab_size].float()
    best = whole.topk(2).indices

    def gaps(logits: Tensor) -> Tensor:
        first, second = logits.gather(1, best).unbind(1)
        return first - second

    blocked = [
        in_blocks(pair.target, ids, range(0, len(text), width))[:, : pair.vocab_size].float()
        for width in (1, 5)
    ]
    return max(float((gaps(whole) - gaps(logits)).abs().max()) for logits in blocked)


@torch.inference_mode()
def greedy_path(pair: ModelPair, prompt: Sequence[int], tokens: int) -> list[int]:
    """What the target says after ``prompt``, at most ``tokens`` ids, uncached."""
    text = list(prompt)
    for _ in range(min(tokens, pair.context_length - len(text))):
        ids = torch.tensor([text], device=pair.device)
        logits = pair.target(input_ids=ids, use_cache=False).logits[0, -1, : pair.vocab_size]
        text.append(int(logits.argmax()))
    return text[len(prompt) :]


def in_blocks(model: PreTrainedModel, ids: Tensor, starts: Sequence[int]) -> Tensor:
    """Logits [T, V] of one text [1, T] fed in blocks, each behind the cached ones before it.

    A recurrent model takes one token at a time, whatever the blocks.

    Parameters
    ----------
    starts : sequence of int
        Where the blocks begin; the first at 0.
    """
    if is_recurrent(model):
        columns = int(model.config.get_text_config().vocab_size)
        recurrent = cached_model(model, ids.shape[1], columns)
        return recurrent.forward(ids, np.zeros(1, dtype=np.int64))[0]
    cache, rows = {cache_argument(model): DynamicCache(config=model.config)}, []
    for start, end in pairwise([*starts, ids.shape[1]]):
        output = model(input_ids=ids[:, start:end], use_cache=True, **cache)
        rows.append(output.logits[0])
    return torch.cat(rows)
