"""The experts of the e-process: named hypotheses of what is wrong with a decoder.

An expert is a law of the next token, fixed before the token is seen. Its likelihood ratio against
the target's law is what a bet on it pays, so under the target's law it pays 1 on average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from harness.contract import Sampling
from harness.stats import faults
from harness.stats.faults import Law, reparametrised, with_parameters
from harness.stats.rows import View
from harness.verdict import FaultClass


@dataclass(frozen=True)
class Expert:
    """A hypothesis.

    Attributes
    ----------
    family : str
        What kind of fault it is: families share the weight, and their members share theirs.
    says : str
        The fault, as a verdict names it.
    law : callable
        ``View`` -> probabilities.
    needs : frozenset of str
        Attributes of ``Rows`` that it looks at, beyond p.
    """

    family: str
    says: str
    law: Law = field(repr=False)
    needs: frozenset[str] = frozenset()

    @property
    def kind(self) -> FaultClass | None:
        """The part of a decoder that has such faults; None where several have."""
        return KINDS.get(self.family)


def _family(
    name: str,
    says: str,
    law: Callable[..., Tensor],
    values: Sequence[float],
    key: str,
    *needs: str,
) -> list[Expert]:
    return [
        Expert(name, says.format(value), partial(law, **{key: value}), frozenset(needs))
        for value in values
    ]


KINDS: Mapping[str, FaultClass] = {
    "leak": FaultClass.ACCEPTANCE,
    "over-accept": FaultClass.ACCEPTANCE,
    "resample": FaultClass.RESIDUAL,
    "residual": FaultClass.RESIDUAL,
    "proposal": FaultClass.PROPOSAL,
    "temperature": FaultClass.PARAMETERS,
    "sharpen": FaultClass.PARAMETERS,
    "parameters": FaultClass.PARAMETERS,
    "shifted row": FaultClass.ACCEPTANCE,
    "replay": FaultClass.RANDOMNESS,
}

LEAKS = (0.01, 0.03, 0.1, 0.3, 0.9)
POWERS = (0.5, 0.8, 0.95, 0.99, 0.997, 1.003, 1.01, 1.05, 1.25, 2.0)
FACTORS = (1.02, 1.1, 1.5, 2.0)

NAMED: tuple[Expert, ...] = (
    *_family("leak", "a share of {:g} of the tokens comes from the draft, unverified",
             faults.leak, LEAKS, "rate", "q"),
    Expert("resample", "rejected tokens are drawn from the target instead of the residual",
           faults.resample_from_target, frozenset({"q"})),
    *_family("over-accept", "drafts are accepted with probability min(1, {:g} p/q)",
             faults.over_accept, FACTORS, "factor", "q"),
    Expert("residual", "rejected tokens are drawn from abs(p - q) instead of (p - q)+",
           faults.abs_residual, frozenset({"q"})),
    Expert("residual", "rejected tokens are drawn from softmax((p - q)+)",
           faults.softmax_residual, frozenset({"q"})),
    Expert("residual", "rejected tokens are the argmax of p - q instead of a draw",
           faults.argmax_residual, frozenset({"q"})),
    *_family("proposal", "drafts are drawn from q^{:.3g} / Z, and judged by q",
             faults.proposal_at, (0.7, 1 / 0.7), "power", "q"),
    Expert("proposal", "drafts are the argmax of q, and judged as if drawn from q",
           faults.proposal_argmax, frozenset({"q"})),
    *_family("proposal", "drafts are judged by {:g} q: their scores are no probabilities",
             faults.unnormalised_proposal, (0.5, 2.0), "scale", "q"),
    *_family("temperature", "tokens follow p^{:.3g} / Z: another temperature",
             faults.temperature, POWERS, "power"),
    *_family("sharpen", "a share of {:g} of the tokens is the likeliest one instead of a draw",
             faults.sharpen, (0.03, 0.3, 0.97), "rate"),
    *_family("flatten", "a share of {:g} of the tokens is any possible one",
             faults.flatten, (0.01, 0.1, 0.5), "rate"),
    *_family("shifted row", "a share of {:g} of the tokens follows the law of the token before",
             faults.shifted, (0.1, 0.9), "rate", "previous"),
    *_family("replay", "a share of {:g} of the tokens repeats an earlier answer",
             faults.replay, (0.1, 0.9), "rate", "replayed"),
)  # fmt: skip


def of_sampling(sampling: Sampling) -> list[Expert]:
    """Experts on sampling parameters that are not the request's own; none on a greedy one.

    A token that is not the argmax has probability zero there, and is proof without a bet.
    """
    if sampling.greedy:
        return []
    found: dict[str, faults.Change] = {}
    s = sampling
    if s.temperature != 1:
        found["the temperature is ignored"] = with_parameters(temperature=1.0)
        found["the temperature is applied twice"] = with_parameters(temperature=torch.square)
    filtered = bool(s.top_k or s.top_p < 1 or s.min_p)
    if filtered and s.temperature != 1:
        found["the filters come before the temperature"] = faults.filters_first
    if s.top_k:
        found["top_k is one larger"] = with_parameters(top_k=lambda k: k + 1)
        found["top_k is one smaller"] = with_parameters(top_k=lambda k: k - 1)
    if s.top_p < 1:
        wider, narrower = (1 + s.top_p) / 2, max(0.01, 2 * s.top_p - 1)
        found[f"top_p is {wider:g}"] = with_parameters(top_p=wider)
        found[f"top_p is {narrower:g}"] = with_parameters(top_p=narrower)
    if s.top_k and s.top_p < 1:
        found["top_p looks at the law before top_k"] = faults.top_p_of_everything
        found["top_k is ignored"] = with_parameters(top_k=float(2**31))
        found["top_p is ignored"] = with_parameters(top_p=1.0)
    needs = frozenset({"scores", "parameters"})
    laws: dict[str, Law] = {k: partial(reparametrised, change=c) for k, c in found.items()}
    if filtered:
        laws["top_k, top_p and min_p are ignored"] = faults.without_filters
    return [Expert("parameters", says, law, needs) for says, law in laws.items()]


def log_ratios(experts: Sequence[Expert], at: View) -> Tensor:
    """log a(x) / p(x) of every expert.

    Returns
    -------
    Tensor [n, J] here, [n, V, J] everywhere; float64
        -inf where the expert rules the token out; 0 where the target does: what an impossible
        token proves is not a matter of betting, and near the border of a filter it proves nothing.
    """
    possible = at.p > 0
    columns = [torch.where(possible, e.law(at).log() - at.log_p, 0.0) for e in experts]
    shape = (*at.p.shape, 0) if not columns else None
    stacked = torch.stack(columns, -1) if shape is None else at.p.new_zeros(shape)
    return stacked.squeeze(1) if at is at.rows.here else stacked


def log_weights(families: Sequence[str]) -> Tensor:
    """Weights [J] for experts of these families: each family has as much as any other."""
    weights = torch.tensor([1 / families.count(f) for f in families], dtype=torch.float64)
    return (weights / weights.sum()).log()
