"""Laws of the next token under named faults.

Each gives the law of a decoder that has the fault, at a position that was drafted: as a function
of the target's p, the draft's q and sums over the row, seen through a ``View``. They are the
experts of the e-process, set the effects that sample sizes are computed for, and name the likely
fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from harness.stats.rows import Rows, View
from reference_impl import sampling
from reference_impl.sampling import Parameters

Law = Callable[[View], Tensor]  # [n, 1] here, [n, V] everywhere
Fault = Callable[[Tensor, Tensor], Tensor]  # p, q [..., V] -> law [..., V]


# --- acceptance ---------------------------------------------------------------------------------


def leak(at: View, rate: float) -> Tensor:
    """A share of tokens comes from the draft unverified; at rate 1: accept-all."""
    return (1 - rate) * at.p + rate * at.q


def resample_from_target(at: View) -> Tensor:
    """A rejected token is replaced by a draw from p instead of the residual."""
    return torch.minimum(at.p, at.q) + _rejected(at) * at.p


def over_accept(at: View, factor: float) -> Tensor:
    """Accepted with probability min(1, factor p/q), recovered from the right residual."""
    return torch.minimum(at.q, factor * at.p) + _rejected(at, factor) * at.residual


# --- the residual -------------------------------------------------------------------------------


def abs_residual(at: View) -> Tensor:
    """Recovered from abs(p - q) instead of (p - q)+."""
    wrong = normalised(at.rows, lambda view: (view.p - view.q).abs())
    return torch.minimum(at.p, at.q) + _rejected(at) * wrong(at)


def softmax_residual(at: View) -> Tensor:
    """Recovered from softmax((p - q)+): nearly uniform."""
    wrong = normalised(at.rows, lambda view: (view.p - view.q).relu().exp())
    return torch.minimum(at.p, at.q) + _rejected(at) * wrong(at)


def argmax_residual(at: View) -> Tensor:
    """Recovered by the argmax of p - q instead of a draw."""
    rows = at.rows
    best = (rows.everywhere.p - rows.everywhere.q).argmax(-1, keepdim=True)
    return torch.minimum(at.p, at.q) + _rejected(at) * at.equals(best)


# --- proposals that are not drawn from the q they are judged by ---------------------------------


def proposal_at(at: View, power: float) -> Tensor:
    """Drawn from q^power / Z (a draft at another temperature), judged by q."""
    return mismatched(at, normalised(at.rows, lambda view: (power * view.log_q).exp()))


def proposal_argmax(at: View) -> Tensor:
    """The draft's argmax, judged as if it had been drawn."""
    best = at.rows.everywhere.q.argmax(-1, keepdim=True)
    return mismatched(at, lambda view: view.equals(best).to(view.p.dtype))


def unnormalised_proposal(at: View, scale: float) -> Tensor:
    """Judged by q times a constant: the draft's scores were no probabilities."""
    kept = torch.minimum(at.q, at.p / scale)
    recovered = normalised(at.rows, lambda view: (view.p - scale * view.q).relu(), or_else=True)
    return kept + _rejected(at, 1 / scale) * recovered(at)


def mismatched(at: View, drawn: Law) -> Tensor:
    """Drafts are draws from one law, and judged and recovered as if from q."""

    def kept(view: View) -> Tensor:
        # q is zero where nothing is proposed, so the ratio does not matter there
        return drawn(view) * (view.p / view.q.clamp(min=1e-300)).clamp(max=1)

    return kept(at) + (1 - at.rows.sum(kept)).clamp(min=0) * at.residual


def normalised(rows: Rows, weight: Law, or_else: bool = False) -> Law:
    """A law from weights; ``or_else``: p where all weights are zero."""
    total = rows.sum(weight)
    floor = total.clamp(min=1e-300)
    if not or_else:
        return lambda view: weight(view) / floor
    return lambda view: torch.where(total > 0, weight(view) / floor, view.p)


def _rejected(at: View, factor: float = 1.0) -> Tensor:
    """Probability that nothing was kept; rounding must not make it negative."""
    return (1 - at.rows.kept(factor)).clamp(min=0)


# --- faults that need no draft ------------------------------------------------------------------


def temperature(at: View, power: float) -> Tensor:
    """p^power / Z: the temperature is 1 / power of what was asked for."""
    return normalised(at.rows, lambda view: (power * view.log_p).exp())(at)


def sharpen(at: View, rate: float) -> Tensor:
    """A share of tokens is the most likely one instead of a draw."""
    return (1 - rate) * at.p + rate * at.best.to(at.p.dtype)  # bool alone becomes float32


def flatten(at: View, rate: float) -> Tensor:
    """A share of tokens is any token, the possible ones alike."""
    anything = normalised(at.rows, lambda view: (view.p > 0).to(view.p.dtype))
    return (1 - rate) * at.p + rate * anything(at)


def shifted(at: View, rate: float) -> Tensor:
    """A share of tokens follows the law of the token before."""
    assert at.rows.previous is not None
    return (1 - rate) * at.p + rate * at.of(at.rows.previous)


def replay(at: View, rate: float) -> Tensor:
    """A share of tokens is what an earlier answer to the same request said here."""
    assert at.rows.replayed is not None
    replayed = at.rows.replayed.unsqueeze(1)
    again = at.equals(replayed).to(at.p.dtype)
    return torch.where(replayed < 0, at.p, (1 - rate) * at.p + rate * again)


# --- sampling parameters that were not those of the request -------------------------------------

Change = Callable[[Tensor, Parameters], Tensor]  # scores, parameters -> probabilities


def reparametrised(at: View, change: Change) -> Tensor:
    """The target's law under sampling parameters that ``change`` makes of the request's.

    Of a large vocabulary only the ``LIKELIEST`` tokens are looked at, which spares sorting the
    rest ten times over; what is left of p beyond them stays as it is.
    """
    rows = at.rows
    assert rows.scores is not None
    assert rows.parameters is not None
    if rows.scores.shape[-1] <= LIKELIEST:
        return at.of(_sums_to_one(change(rows.scores, rows.parameters)))
    scores, tokens = rows.likeliest(LIKELIEST)
    law = _sums_to_one(change(scores, rows.parameters.clipped(LIKELIEST)))
    law *= rows.p.gather(1, tokens).sum(-1, keepdim=True)
    return at.of(rows.p.scatter(1, tokens, law))


LIKELIEST = 1024


def _sums_to_one(law: Tensor) -> Tensor:
    law = law.double()  # float32 sums to 1 up to 1e-7 a token
    return law / law.sum(-1, keepdim=True)


def with_parameters(**changes: float | Callable[[Tensor], Tensor]) -> Change:
    """Constants, or functions of the request's own values, in place of some parameters."""

    def change(scores: Tensor, parameters: Parameters) -> Tensor:
        columns = {}
        for name, value in changes.items():
            own: Tensor = getattr(parameters, name)
            columns[name] = value(own) if callable(value) else torch.full_like(own, value)
        if "top_k" in columns:
            columns["top_k"] = columns["top_k"].clamp(1, scores.shape[-1])
        return sampling.normalise(scores, parameters.replaced(**columns))

    return change


def unfiltered(scores: Tensor, parameters: Parameters) -> Tensor:
    """top_k, top_p and min_p are ignored."""
    return (scores / parameters.temperature.to(scores.dtype)).softmax(-1)


def without_filters(at: View) -> Tensor:
    """The target's law at the request's temperature, without top_k, top_p and min_p."""
    rows = at.rows
    assert rows.scores is not None
    assert rows.parameters is not None
    return at.of(_sums_to_one(unfiltered(rows.scores, rows.parameters)))


def filters_first(scores: Tensor, parameters: Parameters) -> Tensor:
    """The filters look at the law before the temperature has changed it."""
    kept = with_parameters(temperature=1.0)(scores, parameters) > 0
    return _only(kept, unfiltered(scores, parameters))


def top_p_of_everything(scores: Tensor, parameters: Parameters) -> Tensor:
    """top_p looks at the whole law instead of at what top_k has left of it."""
    nucleus = with_parameters(top_k=float(scores.shape[-1]))(scores, parameters) > 0
    likeliest = with_parameters(top_p=1.0)(scores, parameters) > 0
    return _only(nucleus & likeliest, unfiltered(scores, parameters))


def _only(kept: Tensor, law: Tensor) -> Tensor:
    law = law * kept
    return law / law.sum(-1, keepdim=True)


# --- by name, on bare tables ---------------------------------------------------------------------


def on_tables(law: Law) -> Fault:
    """The law as a function of p and q [..., V], which gives [..., V] in their dtype."""

    def fault(p: Tensor, q: Tensor) -> Tensor:
        flat = Rows(p.reshape(-1, p.shape[-1]), q=q.reshape(-1, q.shape[-1]))
        return law(flat.everywhere).reshape(p.shape)

    return fault


_NAMED: Mapping[str, Law] = {
    "drafted tokens are accepted unverified": partial(leak, rate=1.0),
    "3 in 10 tokens come from the draft": partial(leak, rate=0.3),
    "rejected tokens are drawn from the target instead of the residual": resample_from_target,
    "over-acceptance by a factor of 1.1": partial(over_accept, factor=1.1),
    "over-acceptance by a factor of 1.5": partial(over_accept, factor=1.5),
    "1 in 10 tokens is the most likely one instead of a draw": partial(sharpen, rate=0.1),
    "3 in 10 tokens are the most likely one instead of a draw": partial(sharpen, rate=0.3),
}
NAMED: Mapping[str, Fault] = {name: on_tables(law) for name, law in _NAMED.items()}
