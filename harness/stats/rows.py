"""Next-token laws and what was emitted after them: the one input of the sequential statistics.

A law is written once, for a single token: its probability as a function of p(x), q(x) and sums
over the row. Seen ``here`` it is evaluated at the emitted tokens alone, which is what a test
needs; seen ``everywhere`` it is the whole row, which is what power, bounds and proofs need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from reference_impl.sampling import Parameters

SUM_TOLERANCE = 1e-4  # of a row of probabilities, before it is normalised


def checked(law: Tensor, name: str = "law") -> Tensor:
    """Rows of probabilities [n, V] as float64, normalised.

    Raises
    ------
    ValueError
        Naming the value, if one is NaN, infinite or negative, or a row does not sum to 1.
    """
    if law.dim() != 2 or law.shape[1] < 1:
        raise ValueError(f"{name} has shape {tuple(law.shape)}: it must be [tokens, vocabulary]")
    law = law.double()
    total = law.sum(-1, keepdim=True)  # NaN and infinity show in it
    if not bool((law.amin(-1) >= 0).all() and total.isfinite().all()):
        wrong = law[~(law.isfinite() & (law >= 0))]
        value = float(wrong[0]) if len(wrong) else float(law.max())  # or the sum overflows
        raise ValueError(f"a probability of {name} is {value:g}: it must be finite, not negative")
    if law.shape[0] and float((total - 1).abs().max()) > SUM_TOLERANCE:
        row = int((total - 1).abs().argmax())
        raise ValueError(f"row {row} of {name} sums to {float(total[row]):.6g}, not 1")
    return law / total


@dataclass(frozen=True, eq=False)
class Rows:
    """Laws of some tokens, and the tokens.

    Attributes
    ----------
    p : Tensor [n, V], float64
        The target's law of every token given all before it.
    tokens : Tensor [n], int64, or None
        What was emitted; None where ``counts`` are given.
    q : Tensor [n, V], float64, or None
        The draft's law, where it is known.
    previous : Tensor [n, V] or None
        The target's law of the token before; p itself where there is none.
    replayed : Tensor [n], int64, or None
        What an earlier answer to the same request said here, -1 where there is none.
    own_logprobs : Tensor [n] or None
        The decoder's own log probability of each token.
    near : Tensor [n], bool, or None
        Tokens of probability zero that numerical noise could have made possible.
    scores, parameters : Tensor [n, V] and its Parameters, or None
        Processed logits of the target, for laws under other sampling parameters.
    groups : dict of str to Tensor [n], int64
        Labels of the tokens, each known before its token was drawn; -1 for none.
    answer : Tensor [n], int64, or None
        Which of the answers that were scored each token is of.
    counts : Tensor [n, V] or None
        How often each token was emitted after this context, in place of ``tokens``.
    """

    p: Tensor
    tokens: Tensor | None = None
    q: Tensor | None = None
    previous: Tensor | None = None
    replayed: Tensor | None = None
    own_logprobs: Tensor | None = None
    near: Tensor | None = None
    scores: Tensor | None = None
    parameters: Parameters | None = None
    groups: Mapping[str, Tensor] = field(default_factory=dict)
    answer: Tensor | None = None
    counts: Tensor | None = None

    @classmethod
    def of(
        cls, p: Tensor, tokens: Tensor | Sequence[int], q: Tensor | None = None, **more: Any
    ) -> Rows:
        """Check laws and tokens, and put them together.

        Raises
        ------
        ValueError
            For probabilities that are none, tokens outside the vocabulary, shapes that do not
            fit, or no tokens at all.
        """
        tokens = torch.as_tensor(tokens, dtype=torch.int64, device=p.device)
        n, vocab = p.shape if p.dim() == 2 else (-1, -1)
        if tokens.shape != (n,):
            raise ValueError(f"{tuple(tokens.shape)} tokens for laws {tuple(p.shape)}")
        if n < 1:
            raise ValueError("an empty list of tokens")
        if q is not None and q.shape != p.shape:
            raise ValueError(
                f"the draft's laws are {tuple(q.shape)}, the target's {tuple(p.shape)}: "
                "one vocabulary for both"
            )
        if not bool(((tokens >= 0) & (tokens < vocab)).all()):
            wrong = tokens[(tokens < 0) | (tokens >= vocab)][0]
            raise ValueError(f"token {int(wrong)} is outside the vocabulary 0..{vocab - 1}")
        return cls(checked(p, "p"), tokens, None if q is None else checked(q, "q"), **more)

    def __len__(self) -> int:
        """Number of rows."""
        return self.p.shape[0]

    def part(self, first: int, last: int) -> Rows:
        """Rows ``first`` to ``last`` (excluded) as views: laws, tokens and counts."""
        return self._cut(slice(first, last))

    def only(self, wanted: Tensor) -> Rows:
        """Rows that are ``wanted`` [n], bool: laws, tokens and counts."""
        return self._cut(wanted)

    def _cut(self, which: slice | Tensor) -> Rows:
        columns = ("p", "tokens", "q", "previous", "replayed", "near", "counts")
        whole = {name: getattr(self, name) for name in columns}
        cut: dict[str, Any] = {k: None if v is None else v[which] for k, v in whole.items()}
        return Rows(**cut)

    @cached_property
    def here(self) -> View:
        """At the emitted tokens: everything [n, 1]."""
        return View(self, self.tokens)

    @cached_property
    def everywhere(self) -> View:
        """At every token: everything [n, V]."""
        return View(self, None)

    # Sums over the rows, [n, 1], computed once.

    def sum(self, values: Callable[[View], Tensor]) -> Tensor:
        """Sum of ``values`` over the vocabulary."""
        return values(self.everywhere).sum(-1, keepdim=True)

    def kept(self, factor: float = 1.0) -> Tensor:
        """Probability that a proposal is accepted: sum of min(q, factor p)."""
        if factor not in self._kept:
            at = self.everywhere
            self._kept[factor] = torch.minimum(at.q, factor * at.p).sum(-1, keepdim=True)
        return self._kept[factor]

    @cached_property
    def _kept(self) -> dict[float, Tensor]:
        return {}

    @cached_property
    def left(self) -> Tensor:
        """Mass of the residual: sum of (p - q)+."""
        return self.sum(lambda at: (at.p - at.q).relu())

    def likeliest(self, count: int) -> tuple[Tensor, Tensor]:
        """The largest ``count`` scores of each row and their tokens, [n, count]."""
        if count not in self._largest:
            assert self.scores is not None
            values, tokens = self.scores.topk(count)
            self._largest[count] = values, tokens
        return self._largest[count]

    @cached_property
    def _largest(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    @cached_property
    def best(self) -> Tensor:
        """The likeliest token, [n, 1]."""
        return self.p.argmax(-1, keepdim=True)


class View:
    """Rows seen at the emitted tokens, [n, 1], or at every token, [n, V].

    Parameters
    ----------
    rows : Rows
    tokens : Tensor [n], int64, or None
        None for every token.
    """

    def __init__(self, rows: Rows, tokens: Tensor | None) -> None:
        self.rows = rows
        self._at = None if tokens is None else tokens.unsqueeze(1)

    def of(self, law: Tensor) -> Tensor:
        """The part of a whole row [n, V] that is seen."""
        return law if self._at is None else law.gather(1, self._at)

    def equals(self, tokens: Tensor) -> Tensor:
        """Where the token is the given one of its row, [n, 1] int64."""
        if self._at is None:
            return tokens == torch.arange(self.rows.p.shape[1], device=tokens.device)
        return tokens == self._at

    @cached_property
    def p(self) -> Tensor:
        """The target's probabilities."""
        return self.of(self.rows.p)

    @cached_property
    def q(self) -> Tensor:
        """The draft's probabilities."""
        assert self.rows.q is not None, "the draft is not known"
        return self.of(self.rows.q)

    @cached_property
    def log_p(self) -> Tensor:
        """Logarithm of p, -inf where it is zero."""
        return self.p.log()

    @cached_property
    def log_q(self) -> Tensor:
        """Logarithm of q, -inf where it is zero."""
        return self.q.log()

    @cached_property
    def residual(self) -> Tensor:
        """(p - q)+, normalised; p where q leaves nothing of it."""
        left = self.rows.left
        return torch.where(left > 0, (self.p - self.q).relu() / left.clamp(min=1e-300), self.p)

    @cached_property
    def best(self) -> Tensor:
        """Whether it is the target's likeliest token."""
        return self.equals(self.rows.best)
