"""Sampled output follows the target's law.

The support check first: one token of probability zero is proof by itself. Then chi-square, on
the joint law of the next tokens, which is enumerated exactly on a tiny pair. The decoder's plain
arm goes through the same test: if it fails too, the oracle does not describe this engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness import oracle
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Refused, Subject, check, repro
from harness.contract import Request, Sampling
from harness.stats import chi_square, faults
from harness.verdict import Status, Verdict

TOKENS = 3  # of the joint law
POWER = 0.99
EFFECT = "over-acceptance by a factor of 1.1"  # what the sample size is computed for,
# or, where the draft is the target and hides every fault of acceptance:
EFFECT_OF_ANY_DRAFT = "1 in 10 tokens is the most likely one instead of a draw"

SETTINGS: Mapping[str, Sampling] = {
    "T=1": Sampling(temperature=1.0),
    "T=1.4": Sampling(temperature=1.4),
    "T=0.7 top_k=5 top_p=0.9": Sampling(temperature=0.7, top_k=5, top_p=0.9),
    "T=1 min_p=0.1": Sampling(temperature=1.0, min_p=0.1),
}


@check("distribution.joint", "sampling")
def joint(subject: Subject, budget: Budget, setting: str, draft_tokens: int) -> Verdict:
    """Joint law of the next tokens: support, Pearson and G.

    Every token is a draw from p whatever the rounds look like, so the counts of ``TOKENS``-tuples
    are multinomial with an exactly known law. N is what Pearson needs to find ``EFFECT`` with
    probability ``POWER`` at this test's alpha, or the profile's limit if that is less.
    """
    pair = subject.pair
    if pair.vocab_size**TOKENS > oracle.ENUMERABLE:
        return _verdict(
            Status.UNSUPPORTED, f"pair {pair.name} is too large to enumerate: use --pair micro"
        )
    request = Request(
        prompt=random_prompt(pair, 3, budget.seed),
        # One more than is looked at: the last token of a request is never drafted.
        max_new_tokens=TOKENS + 1,
        sampling=SETTINGS[setting],
        draft_tokens=draft_tokens,
    )
    if not subject.supports(request):
        missing = sorted(request.capabilities() - subject.decoder.capabilities)
        return _verdict(Status.UNSUPPORTED, f"the decoder does not declare: {', '.join(missing)}")

    p = oracle.joint_law(pair.target, request, TOKENS, pair.vocab_size)
    q = oracle.joint_law(pair.draft, request, TOKENS, pair.vocab_size)
    law = oracle.joint(p).numpy()
    alternatives = {name: oracle.joint(fault(p, q)).numpy() for name, fault in faults.NAMED.items()}
    tests = 2  # Pearson and G share the level; Bonferroni inside is Holm's worst case
    alpha = budget.alpha / tests
    hidden = np.allclose(alternatives[EFFECT], law, rtol=1e-6)
    effect = alternatives[EFFECT_OF_ANY_DRAFT if hidden else EFFECT]
    needed = chi_square.samples_needed(law, effect, alpha, POWER)
    samples = min(needed, budget.samples)
    visible = [
        name
        for name, alternative in alternatives.items()
        if chi_square.power(law, alternative, samples, alpha) >= POWER
    ]

    counts = _counts(subject, request, samples, pair.vocab_size)
    problem = _problem(counts, law, budget.alpha)
    evidence = {"alpha": budget.alpha, "samples": samples, "samples_needed": needed, **problem}
    if not problem["rejected"]:
        if not visible:
            return _verdict(
                Status.INCONCLUSIVE, f"{samples} samples cannot show any known fault", evidence
            )
        return _verdict(
            Status.PASS,
            f"{samples} samples of {TOKENS} tokens fit the target ({setting}, K={draft_tokens})",
            evidence,
            ruled_out=f"(power {POWER}) " + "; ".join(visible),
        )
    message = f"{problem['rejected']} ({setting}, K={draft_tokens}, {samples} samples)"
    if "plain" in subject.decoder.capabilities:
        plain = msgspec.structs.replace(request, speculate=False)
        control = _problem(_counts(subject, plain, samples, pair.vocab_size), law, budget.alpha)
        evidence["plain_arm"] = control
        if control["rejected"]:
            blame = "; its own plain decoding fails the same test: speculation is not to blame"
            return _verdict(Status.ERROR, message + blame, evidence)
    return _verdict(
        Status.FAIL,
        message,
        evidence,
        likely_fault=_likeliest(counts, law, alternatives),
        repro=repro(subject, [request]),
    )


def _verdict(
    status: Status, message: str, evidence: dict[str, object] | None = None, **more: str
) -> Verdict:
    return Verdict(
        check="distribution.joint", status=status, message=message, evidence=evidence or {}, **more
    )


def _counts(subject: Subject, request: Request, samples: int, vocab: int) -> NDArray[np.int64]:
    """How often each tuple of ``TOKENS`` ids came first, [vocab ** TOKENS].

    Seeds are fixed where the decoder takes them, so a run can be repeated to the token.
    """
    seeded = "seed" in subject.decoder.capabilities
    plain_offset = 0 if request.speculate else samples  # the control arm is independent
    requests = [
        msgspec.structs.replace(request, seed=plain_offset + i if seeded else None)
        for i in range(samples)
    ]
    base = vocab ** np.arange(TOKENS - 1, -1, -1)
    completions = subject.ask(requests)
    for completion in completions:
        if len(completion.tokens) != request.max_new_tokens:
            problem = f"{len(completion.tokens)} tokens of {request.max_new_tokens} asked for"
            raise Refused(problem, [request])
    cells = [int(np.dot(c.tokens[:TOKENS], base)) for c in completions]
    return np.bincount(cells, minlength=vocab**TOKENS)


def _problem(
    counts: NDArray[np.int64], law: NDArray[np.float64], alpha: float
) -> dict[str, object]:
    """Which test rejects, in words (empty: none), with the p-values."""
    impossible = np.flatnonzero((law == 0) & (counts > 0))
    if len(impossible):
        share = counts[impossible].sum() / counts.sum()
        return {"rejected": f"tokens of probability zero were emitted ({share:.2%} of the samples)"}
    results = {
        name: chi_square.goodness_of_fit(counts, law, name)
        for name in ("pearson", "log-likelihood")
    }
    p_values = {name: result.p_value for name, result in results.items()}
    rejected = chi_square.holm(p_values, alpha)
    words = ""
    if rejected:
        first = results[rejected[0]]
        words = (
            f"output does not follow the target's law: {rejected[0]} {first.statistic:.0f} on "
            f"{first.degrees} degrees of freedom, p = {first.p_value:.2g}"
        )
    return {"rejected": words, "p_values": p_values, "degrees": results["pearson"].degrees}


def _likeliest(
    counts: NDArray[np.int64],
    law: NDArray[np.float64],
    alternatives: Mapping[str, NDArray[np.float64]],
) -> str:
    """The named fault under which these counts are likeliest, if one beats the target's law."""
    floor = 1e-12  # a law that forbids what was seen is out, but stays comparable

    def score(candidate: NDArray[np.float64]) -> float:
        return float(counts @ np.log(np.maximum(candidate, floor)))

    best = max(alternatives, key=lambda name: score(alternatives[name]))
    gain = score(alternatives[best]) - score(law)
    if gain <= np.log(1e3):
        return ""
    return f"{best} (10^{gain / np.log(10):.0f} times likelier than the target's law)"
