"""Speculative and plain decoding on the same requests, and the evidence against each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
import torch
from torch import Tensor

from harness import oracle
from harness.bench.tasks import TASKS
from harness.bench.workload import load_workload
from harness.checks.budget import LARGE, Budget
from harness.checks.places import ROLE, places
from harness.checks.reach import EVERY, Reach
from harness.checks.subject import Subject
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair
from harness.stats import experts
from harness.stats.certificate import LEAK, OVER_ACCEPTANCE, Certificate
from harness.stats.eprocess import Decision, EProcess
from harness.stats.paired_bets import PairedBets
from harness.stats.rows import Rows

CONFIDENCE_ALPHA = 1e-3  # of the certificates
NEW_TOKENS = 32
TOKENS_PER_SAMPLE = 4  # of a budget that counts short generations
FEW = 3  # drafts of a block
LOWEST = -50.0  # of one token's log ratio, where arms are compared: an impossible one is no number
MOST_SLACK = 0.5  # nats: log probabilities further off than that are not the oracle's
SLACK_MARGIN = 2.0  # the slack is the largest of a sample


@dataclass
class Arm:
    """One way of decoding: the evidence against it, and its last answers."""

    process: EProcess
    earlier: list[list[int]] = field(default_factory=list)


class TwoArms:
    """Speculative and plain decoding on the same requests, batch after batch.

    Parameters
    ----------
    subject : Subject
    budget : Budget
    sampling : Sampling
    """

    def __init__(self, subject: Subject, budget: Budget, sampling: Sampling) -> None:
        self.subject, self.budget, self.sampling = subject, budget, sampling
        pair = subject.pair
        # A third of the level for each arm against the oracle, one for the arms' comparison.
        self.alpha = budget.alpha / 3
        self.prompts = prompts(pair, budget)
        self.knows_draft = "model_draft" in subject.decoder.capabilities
        self.has_plain = "plain" in subject.decoder.capabilities
        self.logprobs = "logprobs" in subject.decoder.capabilities
        named = (*experts.NAMED, *experts.of_sampling(sampling))
        self.speculative = Arm(EProcess(named, q=True, alpha=self.alpha))
        self.plain = Arm(EProcess(named, q=True, alpha=self.alpha))
        # Swapping two answers must turn the sign of what they won, so both are scored by one
        # function: not by what each arm said before, nor by what its tilt has learned.
        self.compared = [
            i for i, e in enumerate(self.plain.process.fixed) if "replayed" not in e.needs
        ]
        self.between = PairedBets(len(self.compared))
        self.certificates = [Certificate(f, CONFIDENCE_ALPHA) for f in (LEAK, OVER_ACCEPTANCE)]
        self.reach = Reach(self.speculative.process, self.knows_draft)
        self.batches = 0
        self.off = 0.0  # largest distance of its log probabilities from the oracle's, in nats

    def run(self) -> None:
        """Decode and score until the evidence decides, or the tokens are spent."""
        process, detected = self.speculative.process, math.inf
        large = self.subject.pair.target.num_parameters() > LARGE
        most: float = self.budget.samples * TOKENS_PER_SAMPLE
        if large:
            most = min(most, self.budget.large_tokens)
        while self.batches < 2 or (  # the second shows whether answers repeat
            process.tokens < min(most, 2 * detected)
            and self.reach.effective < self.reach.needed(most)
        ):
            scores = [self._batch(speculate=False)] if self.has_plain else []
            scores.append(self._batch(speculate=True))
            if self.has_plain:
                self.between.update((scores[1] - scores[0]).numpy())
            decision = self.decision()
            if self.rejected or self.plain.process.decision().rejected:
                detected = min(detected, decision.tokens)
                most = max(most, 2 * detected)  # to say what it is may take some more
                if self.rejected and decision.settled:
                    return

    def decision(self) -> Decision:
        """On the speculative arm, after slack."""
        process = self.speculative.process
        if self.has_plain and not self.believed and self.plain.process.tokens:
            plain = self.plain.process
            return process.decision(plain.log_wealths * (process.tokens / plain.tokens))
        return process.decision()

    @property
    def rejected(self) -> bool:
        """Whether the speculative arm is not the target's, as far as this engine can be judged.

        Wealth that was handed back is no martingale: if both arms follow one law that is not quite
        the oracle's, one may by luck be far ahead of the other. So where that is the only slack,
        it is the comparison of the arms that decides.
        """
        decision = self.decision()
        impossible = decision.impossible > 0 and not self.plain.process.impossible
        against_oracle = decision.rejected and (self.believed or not self.has_plain)
        return self.arms_differ or impossible or against_oracle

    @property
    def arms_differ(self) -> bool:
        """Whether the two arms differ in what they win, whatever the oracle is worth.

        This takes no slack, so it also finds what log probabilities of a wrong law would excuse.
        """
        return self.has_plain and self.between.decision(self.alpha)

    def requests(self, speculate: bool) -> list[Request]:
        """One batch: every prompt, each with a seed of its own where the decoder takes one."""
        seeded = "seed" in self.subject.decoder.capabilities
        first = self.budget.seed + 2 * self.batches * len(self.prompts)
        return [
            Request(
                prompt=prompt,
                max_new_tokens=NEW_TOKENS,
                sampling=self.sampling,
                seed=first + 2 * i + speculate if seeded else None,
                speculate=speculate,
                draft_tokens=self._draft_tokens(),
                logprobs=self.logprobs,
            )
            for i, (_, prompt) in enumerate(self.prompts)
        ]

    def _draft_tokens(self) -> int:
        # Few drafts make many bonus tokens, in which no fault of acceptance shows.
        several = [k for k in self.budget.draft_tokens if k >= FEW] or self.budget.draft_tokens
        return several[-1 - self.batches % len(several)]

    def _batch(self, *, speculate: bool) -> Tensor:
        """Decode one batch, score it, bet on it; what each answer won for ``compared``, [B, J]."""
        arm = self.speculative if speculate else self.plain
        requests = self.requests(speculate)
        completions = [_cut(completion) for completion in self.subject.ask(requests)]
        answers = [
            oracle.Answer(
                request,
                c.tokens,
                c.logprobs if self.logprobs else None,
                arm.earlier[i] if arm.earlier else (),
                {"task": self.prompts[i][0], "row": i, **places(c.tokens, c.rounds)},
            )
            for i, (request, c) in enumerate(zip(requests, completions, strict=True))
        ]
        scores = torch.zeros(len(answers), len(self.compared), dtype=torch.float64)
        margin = max(oracle.NEAR, 2 * self.slack)
        first = arm.process.tokens == 0
        for number, rows in enumerate(oracle.score(self.subject.pair, answers, margin=margin)):
            assert rows.answer is not None
            if not (speculate and self.has_plain):
                self._measure_slack(rows)
            ratios = arm.process.update(rows, self.slack)
            scores.index_add_(0, rows.answer.cpu(), ratios[:, self.compared].clamp(min=LOWEST))
            if speculate:
                self._certify(rows)
                if first and number % EVERY == 0:
                    self.reach.look(rows)
        if speculate:
            self.reach.count(sum(len(c.tokens) for c in completions), requests[0].draft_tokens)
            self.batches += 1
        arm.earlier = [completion.tokens for completion in completions]
        return scores

    def _certify(self, rows: Rows) -> None:
        """Of over-acceptance only where rounds are reported: in a bonus token there can be none."""
        leak, over_acceptance = self.certificates
        leak.update(rows)
        if ROLE in rows.groups and bool((drafted := rows.groups[ROLE] == 0).any()):
            over_acceptance.update(rows.only(drafted))

    def _measure_slack(self, rows: Rows) -> None:
        """How far the control arm's own log probabilities are from the oracle's."""
        if rows.own_logprobs is None:
            return
        off = (rows.own_logprobs - rows.here.log_p.squeeze(1)).abs()
        self.off = max(self.off, float(off[rows.here.p.squeeze(1) > 0].nan_to_num(0.0).max()))

    @property
    def believed(self) -> bool:
        """Whether the decoder gives log probabilities, and they are about the oracle's."""
        return self.logprobs and self.off <= MOST_SLACK

    @property
    def slack(self) -> float:
        """Nats up to which the decoder's own log probabilities are believed."""
        return SLACK_MARGIN * self.off if self.believed else 0.0

    def slack_in_words(self) -> str:
        """What was measured, and where."""
        arm = "plain" if self.has_plain else "speculative"
        if self.believed:
            return (
                f"{self.slack:.2g} nats a token: its own log probabilities are believed that far "
                f"(they are within {self.off:.2g} of the oracle's in the {arm} arm)"
            )
        words = ""
        if self.logprobs:
            words = (
                f"; the log probabilities of the {arm} arm are up to {self.off:.2g} nats from the "
                "oracle's, and were not used"
            )
        if self.has_plain:
            handed = "what the plain arm wins against the oracle is handed back, expert by expert"
            return f"{handed}, and the comparison of the arms decides{words}"
        if words:
            return f"none{words}"
        return "none: no log probabilities and no plain arm to measure it by"


def _cut(completion: Completion) -> Completion:
    """Without tokens that were not asked for, which are the business of the stopping suite."""
    logprobs = completion.logprobs and completion.logprobs[:NEW_TOKENS]
    return msgspec.structs.replace(
        completion, tokens=completion.tokens[:NEW_TOKENS], logprobs=logprobs
    )


def prompts(pair: ModelPair, budget: Budget) -> list[tuple[int, tuple[int, ...]]]:
    """Task and ids of the prompts of a batch: of all tasks, as many as the budget has batches for.

    A tiny pair takes all there are. A large one takes so few that there are at least two batches:
    the second is needed to see an answer repeated.
    """
    per_task = None
    if pair.target.num_parameters() > LARGE:
        per_task = max(1, budget.large_tokens // (2 * NEW_TOKENS * len(TASKS)))
    found = load_workload(pair, TASKS, per_task, NEW_TOKENS)
    return [(TASKS.index(prompt.task), prompt.ids) for prompt in found]
