"""The target's law of the next tokens of one request: everything that sampled output is held to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from harness import oracle
from harness.contract import Request
from harness.models import ModelPair
from harness.stats import faults
from harness.verdict import Unsupported
from reference_impl import sampling
from reference_impl.cache import fit_vocabulary

Floats = NDArray[np.float64]
TOKENS = 3  # of the joint law
ROWS_AT_ONCE = 2048  # of a forward pass


@dataclass(frozen=True)
class Laws:
    """Exact laws of the next tokens, and of what named faults would make of them.

    Attributes
    ----------
    joint : ndarray [V ** TOKENS]
        Of the first ``TOKENS`` tokens.
    first : ndarray [V]
        Of the first token.
    lagged : ndarray [V * V] or None
        Of the pair (x_0, x_{K+1}); None where there are too many outcomes between the two.
    alternatives : dict of str to ndarray [V ** TOKENS]
        Of the first ``TOKENS`` tokens under each fault of ``faults.NAMED``.
    elsewhere : ndarray [V ** TOKENS]
        Of the first ``TOKENS`` tokens of a decoder that does not follow p at all: the draft's; or
        the likeliest ones, where the draft is the target and hides what comes from it.
    source : str
        Which of the two.
    """

    joint: Floats
    first: Floats
    lagged: Floats | None
    alternatives: Mapping[str, Floats]
    elsewhere: Floats
    source: str

    @classmethod
    def of(cls, pair: ModelPair, request: Request) -> Laws:
        """Enumerate them on a pair that is small enough for ``TOKENS`` tokens."""
        vocab = pair.vocab_size
        tokens = request.draft_tokens + 2  # x_0 to x_{K+1}
        lagged = None
        if vocab**tokens <= oracle.ENUMERABLE:
            cells = oracle.joint(conditional_laws(pair.target, request, tokens, vocab)).numpy()
            lagged = cells.reshape(vocab, -1, vocab).sum(1).ravel()
        p = conditional_laws(pair.target, request, TOKENS, vocab)
        q = oracle.joint_law(pair.draft, request, TOKENS, vocab)
        joint = oracle.joint(p).numpy()
        same = torch.allclose(p, q)
        elsewhere = sampling.one_hot(p.argmax(-1), vocab).double() if same else q
        return cls(
            joint=joint,
            first=position(joint, vocab, 0),
            lagged=lagged,
            alternatives={
                name: oracle.joint(fault(p, q)).numpy() for name, fault in faults.NAMED.items()
            },
            elsewhere=oracle.joint(elsewhere).numpy(),
            source="that are the likeliest one" if same else "from the draft",
        )


def require_enumerable(pair: ModelPair, tokens: int) -> None:
    """Unsupported, if the law of so many tokens has too many outcomes."""
    if pair.vocab_size**tokens > oracle.ENUMERABLE:
        raise Unsupported(f"pair {pair.name} is too large to enumerate: use --pair micro")


def position(cells: Floats, vocab: int, i: int) -> Floats:
    """Law [V] of the token at position ``i``, from the joint law [V ** n] of the first n."""
    law: Floats = cells.reshape(vocab**i, vocab, -1).sum((0, 2))
    return law


@torch.inference_mode()
def conditional_laws(model: PreTrainedModel, request: Request, tokens: int, vocab: int) -> Tensor:
    """Law of each of the next tokens given every possible output, as ``oracle.joint_law`` has it.

    Returns
    -------
    Tensor [vocab ** (tokens - 1), tokens, vocab], float64
    """
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
    outputs = prefixes(tokens, vocab)
    logits = []
    for part in torch.split(outputs, ROWS_AT_ONCE):
        ids = torch.cat([torch.tensor([prompt]).expand(len(part), -1), part], 1)
        output = model(input_ids=ids.to(model.device), use_cache=False).logits[:, -tokens:]
        logits.append(fit_vocabulary(output, vocab).float().cpu())
    return torch.cat(logits)


def prefixes(tokens: int, vocab: int) -> Tensor:
    """All outputs of ``tokens - 1`` ids, [vocab ** (tokens - 1), tokens - 1], counting upwards."""
    if tokens == 1:
        return torch.empty(1, 0, dtype=torch.int64)
    return torch.cartesian_prod(*[torch.arange(vocab)] * (tokens - 1)).view(-1, tokens - 1)
