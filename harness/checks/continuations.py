"""The target's law of the next tokens of one request: everything that sampled output is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from harness import oracle
from harness.contract import Request
from harness.models import ModelPair
from harness.stats import faults
from harness.verdict import Unsupported
from reference_impl import sampling

Floats = NDArray[np.float64]
TOKENS = 3  # of the joint law


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
            cells = oracle.joint(oracle.joint_law(pair.target, request, tokens, vocab)).numpy()
            lagged = cells.reshape(vocab, -1, vocab).sum(1).ravel()
        p = oracle.joint_law(pair.target, request, TOKENS, vocab)
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
