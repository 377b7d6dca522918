"""Acceptance: the rounds add up, and accept as often as p and q say that they may.

More than the laws allow is a fault. Less is none of the output, which stays the target's: it is
a fault on the draft's side that costs speed, or another exact rule, and a PASS tells it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from harness import oracle
from harness.checks import greedy, naming
from harness.checks.budget import Budget
from harness.checks.places import places
from harness.checks.prompts import random_prompt
from harness.checks.subject import NOTHING_TO_ASK, Subject, check, repro
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair
from harness.scoring import Answer
from harness.stats.acceptance import AcceptanceTest, excess, smallest_excess, trials_needed
from harness.stats.eprocess import EProcess
from harness.stats.experts import NAMED
from harness.stats.trials import Floats, Trials, wrong_rounds
from harness.verdict import FaultClass, Status, Unsupported, Verdict

POWER = 0.99
EXCESS = 0.1  # relative, of first positions: found with that power
HOT = Sampling(temperature=3.0)  # even a hostile draft is then accepted often enough to count
LOOK = 128  # generations between two looks

ADDS_UP = "more accepted than drafted, more drafted than K, rounds that do not add up to the output"
LESS = (
    "accepts {:.3f} of the drafts, token-wise rejection would accept {:.3f}: a fault on the "
    "draft's side (stale cache, wrong positions), or an exact rule that accepts less"
)
LATER = (
    "accepts {:.3f} of the drafts behind the first of a round, token-wise rejection would accept "
    "{:.3f}: an exact rule that looks at the whole block, or drafts that are not verified"
)


@check("acceptance.identities", "rounds")
def identities(subject: Subject, budget: Budget) -> Verdict:
    """Rounds obey accepted <= drafted <= K, and add up to the output, wherever it ends."""
    name = "acceptance.identities"
    some = range(0, subject.pair.vocab_size, max(1, subject.pair.vocab_size // 8))
    ends: list[dict[str, Any]] = [{}, {"eos": tuple(some)}, {"stop": tuple((t,) for t in some)}]
    asked = 0
    for sampling in (Sampling(), Sampling(temperature=1.0)):
        requests = [
            Request(
                prompt=random_prompt(subject.pair, 3 + seed, budget.seed + seed),
                max_new_tokens=length,
                draft_tokens=k,
                sampling=sampling,
                seed=seed_of(subject, sampling, seed),
                **end,
            )
            for k in budget.draft_tokens
            for seed in range(budget.prompts)
            for length in sorted({1, 2, k + 1, budget.new_tokens})
            for end in ends
        ]
        supported = [request for request in requests if subject.supports(request)]
        completions = subject.ask(supported) if supported else []
        if wrong := wrong_counts(subject, name, supported, completions):
            return wrong
        asked += len(supported)
    if not asked:
        raise Unsupported(NOTHING_TO_ASK)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"the rounds of {asked} outputs add up",
        ruled_out=f"{ADDS_UP}, at K {budget.draft_tokens[0]}..{budget.draft_tokens[-1]}, greedy "
        "and sampled, ended by EOS, stop sequence or length, as far as declared",
        evidence={"requests": asked},
    )


@check("acceptance.expected", "rounds", "model_draft", "sampling")
def expected(subject: Subject, budget: Budget) -> Verdict:
    """First positions are accepted no oftener than sum min(p, q); what is less is told.

    Batches of generations until the bets reject, or until an excess of ``EXCESS`` would have made
    them reject with probability ``POWER``.
    """
    name = "acceptance.expected"
    test, slack = AcceptanceTest(budget.alpha), slack_of(subject.pair, HOT)
    requests: list[Request] = []
    first, needed = np.empty(0), math.inf
    while len(requests) < budget.samples and len(first) < needed:
        batch = [
            _sampled(subject, budget, seed)
            for seed in range(len(requests), min(len(requests) + LOOK, budget.samples))
        ]
        requests += batch
        completions = subject.ask(batch)
        if wrong := wrong_counts(subject, name, batch, completions):
            return wrong
        laws = beta_and_gap(subject.pair, batch, completions)
        trials = Trials.joined(
            [Trials.of(c.rounds or [], law[:, 0]) for c, law in zip(completions, laws, strict=True)]
        )
        test.update(trials, slack)
        first = np.concatenate([first, trials.beta[trials.position == 0]])
        if test.rejects("more", "first") or not len(first):
            break
        oftener = excess(first, EXCESS)
        needed = trials_needed(first, oftener, budget.alpha, POWER, slack)
        if math.isinf(trials_needed(first, oftener, budget.alpha, POWER)):
            raise Unsupported(
                "every draft may be accepted, or none: sum min(p, q) is 1 or 0 at all first "
                f"positions of {subject.pair.name}, use another pair"
            )
    evidence = evidence_of(test, slack) | {
        "generations": len(requests),
        "first_positions_needed": math.ceil(needed) if math.isfinite(needed) else None,
    }
    if test.rejects("more", "first"):
        return _accepts_too_much(subject, name, test, requests, evidence)
    if len(first) < needed:
        message = (
            f"{len(first)} first positions cannot show an excess of {EXCESS:.0%} "
            f"(the models' own noise is worth {slack:.2g} of them)"
        )
        return Verdict(check=name, status=Status.INCONCLUSIVE, message=message, evidence=evidence)
    visible = smallest_excess(first, len(first), budget.alpha, POWER, slack)
    _, accepted, chance = test.totals("first")
    return Verdict(
        check=name,
        status=Status.PASS,
        message="; ".join(evidence["flags"])
        or f"accepts {accepted / len(first):.3f} of {len(first)} first positions, "
        f"expected {chance / len(first):.3f} (sum min(p, q))",
        ruled_out=f"(power {POWER}) first positions accepted {visible:.1%} too often; (confidence "
        f"1 - {budget.alpha:.2g}) {test.ratio('first')[1]:.3g} times as often as expected",
        evidence=evidence,
    )


def _sampled(subject: Subject, budget: Budget, seed: int) -> Request:
    return Request(
        prompt=random_prompt(subject.pair, 3, budget.seed + seed),
        max_new_tokens=budget.new_tokens,
        sampling=HOT,
        # Several positions a round, to report on; no more, as the first ones are what counts.
        draft_tokens=max([k for k in budget.draft_tokens if k <= 4] or budget.draft_tokens[:1]),
        seed=seed_of(subject, HOT, seed),
    )


def seed_of(subject: Subject, sampling: Sampling, seed: int) -> int | None:
    return seed if not sampling.greedy and "seed" in subject.decoder.capabilities else None


def slack_of(pair: ModelPair, sampling: Sampling) -> float:
    """How far noise may move beta: logits that move by e at most move a law by e / 2 in TV.

    So beta moves by e at most, half for p and half for q.
    """
    return min(0.5, greedy.NOISE_MARGIN * greedy.noise_of(pair) / sampling.temperature)


def beta_and_gap(
    pair: ModelPair, requests: Sequence[Request], completions: Sequence[Completion]
) -> list[Floats]:
    """At every token of every output: beta, and the gap of the target's two best logits, [n, 2].

    Tokens beyond those asked for are left out: the model may have no positions for them.
    """
    answers = [
        Answer(request, completion.tokens[: request.max_new_tokens])
        for request, completion in zip(requests, completions, strict=True)
    ]
    found: list[Floats] = [np.empty((0, 2))] * len(answers)
    for rows in oracle.score(pair, answers):
        assert rows.scores is not None
        assert rows.answer is not None
        best = rows.scores.double().topk(2).values
        values = torch.stack([rows.kept().squeeze(1), best[:, 0] - best[:, 1]], 1).cpu().numpy()
        of = rows.answer.cpu().numpy()  # an answer's tokens are together, and in order
        for answer in np.unique(of):
            found[answer] = np.concatenate([found[answer], values[of == answer]])
    return found


def wrong_counts(
    subject: Subject, name: str, requests: Sequence[Request], completions: Sequence[Completion]
) -> Verdict | None:
    """FAIL for the first completion whose rounds do not add up."""
    for request, completion in zip(requests, completions, strict=True):
        rounds, tokens = completion.rounds, len(completion.tokens)
        if problem := wrong_rounds(rounds, tokens, request.draft_tokens):
            likely = "the counts are not those of the tokens that were emitted"
            kind = FaultClass.METRICS
            if len(requests) > 1:
                alone = subject.ask_one(request)
                if not wrong_rounds(alone.rounds, len(alone.tokens), request.draft_tokens):
                    likely, kind = "rows of a batch are mixed up", FaultClass.BATCH
            return Verdict(
                check=name,
                status=Status.FAIL,
                message=problem,
                likely_fault=likely,
                fault_class=kind,
                evidence={
                    "tokens": tokens,
                    "finish_reason": completion.finish_reason,
                    "rounds": [[r.drafted, r.accepted] for r in rounds or []],
                },
                repro=repro(subject, [request]),
            )
    return None


def evidence_of(test: AcceptanceTest, slack: float) -> dict[str, Any]:
    flags = []
    for direction, where, words in (("less", "all", LESS), ("more", "later", LATER)):
        if test.rejects(direction, where):  # type: ignore[arg-type]
            trials, accepted, chance = test.totals(where)  # type: ignore[arg-type]
            flags.append(words.format(accepted / trials, chance / trials))
    low, high = test.ratio("first")
    return {
        "alpha": test.alpha,
        "slack": slack,
        "first_positions": test.totals("first")[0],
        "first_over_expected": [low, high if math.isfinite(high) else None],
        "by_position": test.by_position(),
        "flags": flags,
    }


def _accepts_too_much(
    subject: Subject,
    name: str,
    test: AcceptanceTest,
    requests: Sequence[Request],
    evidence: dict[str, Any],
) -> Verdict:
    """FAIL; ERROR where the plain arm does not follow the target either."""
    trials, accepted, chance = test.totals("first")
    message = (
        f"accepts {accepted / trials:.3f} of {trials} first positions, and no exact rule accepts "
        f"more than {chance / trials:.3f} (sum min(p, q))"
    )
    if "plain" in subject.decoder.capabilities:
        plain = [msgspec.structs.replace(request, speculate=False) for request in requests]
        control = _bets(subject, plain, test.alpha).decision()
        evidence["plain_arm_log_wealth"] = control.log_wealth
        if control.rejected:
            blame = "; its own plain decoding does not follow p: speculation is not to blame"
            return Verdict(
                check=name, status=Status.ERROR, message=message + blame, evidence=evidence
            )
    likely, kind = naming.named(_bets(subject, requests, test.alpha))
    proposal = kind is FaultClass.PROPOSAL
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=message,
        likely_fault=likely
        if proposal
        else "drafts are accepted too readily, or counted as accepted when they were not",
        fault_class=FaultClass.PROPOSAL if proposal else FaultClass.ACCEPTANCE,
        evidence=evidence,
    )


def _bets(subject: Subject, requests: Sequence[Request], alpha: float) -> EProcess:
    """The e-process on the tokens of these requests, asked once more."""
    answers = [
        Answer(r, c.tokens, labels=dict(places(c.tokens, c.rounds)))
        for r, c in zip(requests, subject.ask(requests), strict=True)
    ]
    process = EProcess([e for e in NAMED if e.needs <= {"q"}], q=True, alpha=alpha)
    for rows in oracle.score(subject.pair, answers):
        process.update(rows)
    return process
