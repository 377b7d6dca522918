"""The target as its own draft: everything is accepted, at every length.

What an output hides shows here: a draft whose cache is stale, or whose positions are off by one,
proposes other tokens than the target would.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec.structs import replace

from harness.checks.acceptance import beta_and_gap, evidence_of, seed_of, slack_of, wrong_counts
from harness.checks.budget import Budget
from harness.checks.greedy_drafts import evidence_of as evidence_of_drafts
from harness.checks.greedy_drafts import far_requests, noise_of, reached, rejection
from harness.checks.prompts import lengths, random_prompt
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.stats.acceptance import AcceptanceTest
from harness.stats.trials import Trials
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.cache import sliding_window

WARM = Sampling(temperature=1.0)


@check("acceptance.self_draft_positions", "rounds", "model_draft")
def accepts_all_by_position(subject: Subject, budget: Budget) -> Verdict:
    """The same where positions are absolute: a draft that is told other ones says other things.

    Kills alone: draft_positions_shifted.
    """
    verdict = _accepts_all(subject, budget, "acceptance.self_draft_positions")
    if verdict.fault_class is not FaultClass.SPEED:
        return verdict
    return replace(verdict, fault_class=FaultClass.POSITIONS)  # what differs from the other check


@check("acceptance.self_draft", "rounds", "model_draft")
def accepts_all(subject: Subject, budget: Budget) -> Verdict:
    """The target as its own draft is accepted at every length, up to numerical noise.

    A greedy draft may be rejected where the two best logits are nearer than the noise measured on
    this model, and nowhere else: not after rounds that were accepted whole, not for one K more
    than for another, and not in the long run. A sampled one may with the probability with which p
    and q part, and that noise; what is rejected beyond is told, as an exact rule may accept less.
    """
    return _accepts_all(subject, budget, "acceptance.self_draft")


def _accepts_all(subject: Subject, budget: Budget, name: str) -> Verdict:
    pair = subject.pair
    if not _is_its_own_draft(pair):
        raise Unsupported(f"the draft of {pair.name} is not its target: use --pair tiny-self")
    test, slack = AcceptanceTest(budget.alpha), slack_of(pair, WARM)
    evidence: dict[str, Any] = {"gap_of_noise": noise_of(pair)}
    drafted, near_ties, parts = 0, 0, []
    for sampling in (Sampling(), WARM):
        requests = _at_every_length(subject, budget, sampling)
        completions = subject.ask(requests) if requests else []
        if wrong := wrong_counts(subject, name, requests, completions):
            return wrong
        if sampling.greedy:
            drafts = reached(pair, requests, completions)
            if wrong := rejection(subject, name, requests, drafts):
                return wrong
            evidence |= evidence_of_drafts(drafts, requests)
            drafted, near_ties = len(drafts), sum(not draft.accepted for draft in drafts)
            continue
        laws = beta_and_gap(pair, requests, completions)
        for completion, law in zip(completions, laws, strict=True):
            parts.append(Trials.of(completion.rounds or [], law[:, 0]))
    if parts:
        test.update(Trials.joined(parts), slack)
    evidence |= evidence_of(test, slack)
    sampled, accepted, _ = test.totals("all")
    if not drafted and not sampled:
        message = "not a single position was drafted"
        return Verdict(check=name, status=Status.INCONCLUSIVE, message=message, evidence=evidence)
    said = [f"accepts all {drafted} greedy drafts"] if drafted else []
    if near_ties:
        said = [f"accepts {drafted - near_ties} of {drafted} greedy drafts, the others near-ties"]
    if sampled:
        said += evidence["flags"] or [f"{accepted} of {sampled} sampled ones"]
    visible = (
        [f"a greedy draft rejected beyond a logit gap of {noise_of(pair):.2g}"] if drafted else []
    )
    if sampled:
        low = test.ratio("all")[0]
        visible += [
            f"(confidence 1 - {budget.alpha:.2g}) sampled ones accepted less than {low:.4f} times "
            "as often as expected"
        ]
    return Verdict(
        check=name,
        status=Status.PASS,
        message="; ".join(said),
        ruled_out="; ".join(visible),
        evidence=evidence,
    )


def _at_every_length(subject: Subject, budget: Budget, sampling: Sampling) -> list[Request]:
    """Supported requests over K and the length of the prompt, up to the end of the context."""
    pair = subject.pair
    window = sliding_window(pair.target.config.get_text_config())
    requests = [
        Request(
            prompt=random_prompt(pair, length, budget.seed + seed),
            max_new_tokens=budget.new_tokens,
            draft_tokens=k,
            sampling=sampling,
            seed=seed_of(subject, sampling, seed),
        )
        for k in budget.draft_tokens
        for length in lengths(pair, k, pair.context_length - budget.new_tokens, window)
        for seed in range(budget.prompts)
    ]
    if sampling.greedy:
        requests += far_requests(subject, budget)
    return [request for request in requests if subject.supports(request)]


def _is_its_own_draft(pair: ModelPair) -> bool:
    target, draft = pair.target.state_dict(), pair.draft.state_dict()
    return target.keys() == draft.keys() and all(
        torch.equal(weight, draft[name]) for name, weight in target.items()
    )
