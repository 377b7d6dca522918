"""Whether a sampled speedup may be shown: the evidence of the very tokens that were timed.

The e-process of the suites (``harness.stats.eprocess``) on the outputs of both arms of one decoder,
with the plain arm as control. Nothing is decoded again: what is judged is what was timed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from harness import oracle
from harness.bench.measure import Settings
from harness.bench.row_figures import timeable
from harness.bench.summary import EVIDENCE
from harness.checks.arms import CONFIDENCE_ALPHA
from harness.checks.evidence import reason
from harness.checks.naming import named
from harness.checks.places import ROLE, places
from harness.checks.reach import EVERY, POWER, Reach
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.record import GenerationRow, VerdictRow
from harness.stats import experts
from harness.stats.certificate import LEAK, OVER_ACCEPTANCE, Certificate
from harness.stats.eprocess import Decision, EProcess
from harness.stats.rows import Rows
from harness.verdict import Status, Verdict

Prompts = Mapping[tuple[str, str], tuple[int, ...]]
"""Ids of every prompt, by task and name."""

Path = list[tuple[int, float]]
"""Tokens and log10 wealth, output after output."""

MOST = 200  # points of a path that a record keeps
SMALL = 4096  # ids: of more, the power is computed from one chunk of contexts in ``EVERY``


@dataclass(frozen=True)
class Decisions:
    """What the e-processes of both arms say.

    Attributes
    ----------
    speculative, plain : Decision
        Against the target's law.
    net : Decision
        Of the speculative arm, less what the plain arm won by the same expert: to plain decoding
        nothing but numerics can have happened.
    """

    speculative: Decision
    plain: Decision
    net: Decision

    @property
    def status(self) -> Status | None:
        """What they come to; None where nothing speaks against either arm."""
        if self.plain.rejected:
            return Status.ERROR  # the oracle does not describe this engine
        if not self.speculative.rejected:
            return None
        return Status.FAIL if self.net.rejected else Status.INCONCLUSIVE


class Evidence:
    """Both arms of one decoder against the target's law, output by output.

    Parameters
    ----------
    pair : ModelPair
    settings : Settings
    knows_draft : bool
        Whether drafts are drawn from the pair's draft model.
    alpha : float
        Error level, half of which each arm has.
    """

    def __init__(
        self, pair: ModelPair, settings: Settings, knows_draft: bool, alpha: float
    ) -> None:
        self.pair, self.settings, self.alpha = pair, settings, alpha
        self.sampling = Sampling(temperature=settings.temperature)
        named = (*experts.NAMED, *experts.of_sampling(self.sampling))
        self.speculative = EProcess(named, q=True, alpha=alpha / 2)
        self.plain = EProcess(named, q=True, alpha=alpha / 2)
        self.reach = Reach(self.speculative, knows_draft)
        self.certificates = [Certificate(f, CONFIDENCE_ALPHA) for f in (LEAK, OVER_ACCEPTANCE)]
        self.outputs = 0
        self.path: Path = [(0, 0.0)]
        self.plain_path: Path = [(0, 0.0)]
        self._chunks = 0
        self._earlier: dict[tuple[str, str, bool], list[int]] = {}

    def take_in(self, row: GenerationRow, prompt: tuple[int, ...]) -> None:
        """Judge both outputs of a row."""
        for rows in self._scored(row, prompt, speculate=False):
            self.plain.update(rows)
            self.plain_path.append(_at(self.plain))
        for rows in self._scored(row, prompt, speculate=True):
            self.speculative.update(rows)
            self.path.append(_at(self.speculative))
            leak, over_acceptance = self.certificates
            leak.update(rows)
            # In a bonus token there is no over-acceptance, so only where rounds are told.
            if ROLE in rows.groups and bool((drafted := rows.groups[ROLE] == 0).any()):
                over_acceptance.update(rows.only(drafted))
            if self.pair.vocab_size <= SMALL or self._chunks % EVERY == 0:
                self.reach.look(rows)
            self._chunks += 1
        self.outputs += 1
        self.reach.count(len(row.tokens), self.settings.draft_tokens)

    def _scored(
        self, row: GenerationRow, prompt: tuple[int, ...], speculate: bool
    ) -> Sequence[Rows]:
        """Laws of one output.

        One at a time, in the order of measurement: scored together they are sorted by length, and
        where EOS may end them that is an order which knows the future.
        """
        tokens = row.tokens if speculate else row.plain_tokens
        rounds = row.rounds if speculate else None
        request = Request(prompt=prompt, max_new_tokens=len(tokens), sampling=self.sampling)
        key = (row.task, row.prompt_id, speculate)
        earlier = self._earlier.get(key, ())
        self._earlier[key] = tokens
        answer = oracle.Answer(request, tokens, earlier=earlier, labels=places(tokens, rounds))
        return list(oracle.score(self.pair, [answer]))

    def verdict(self) -> Verdict:
        """What may be said now."""
        share = self.speculative.tokens / max(1, self.plain.tokens)
        decisions = Decisions(
            self.speculative.decision(),
            self.plain.decision(),
            self.speculative.decision(self.plain.log_wealths * share),
        )
        status = decisions.status
        said = [str(c) for c in self.certificates if self.reach.knows_draft and c.says_something]
        if status is None:
            status = Status.PASS if self.reach.says_something else Status.INCONCLUSIVE
        likely, kind = "", None
        if status in (Status.FAIL, Status.ERROR):
            likely, kind = named(self.speculative if status is Status.FAIL else self.plain)
        return Verdict(
            check=EVIDENCE,
            status=status,
            message=f"{self._in_words(decisions, status)} ({self._about()})",
            ruled_out="; ".join(
                [f"(confidence {1 - CONFIDENCE_ALPHA:g}) {text}" for text in said]
                + [f"(power {POWER:g}) {text}" for text in self.reach.visible()]
            )
            if status is Status.PASS
            else "",
            likely_fault=likely,
            fault_class=kind,
            evidence={
                "alpha": self.alpha,
                "alpha_of_an_arm": self.alpha / 2,
                "tokens": decisions.speculative.tokens,
                "tokens_that_tell": round(self.reach.effective),
                "tokens_for_a_gross_fault": _finite(self.reach.gross),
                "log10_wealth": decisions.speculative.log10_wealth,
                "path": _thinned(self.path),
                "plain_arm": {
                    "tokens": decisions.plain.tokens,
                    "log10_wealth": decisions.plain.log10_wealth,
                    "path": _thinned(self.plain_path),
                },
                "log10_wealth_less_what_the_plain_arm_won": decisions.net.log10_wealth,
            },
        )

    def _about(self) -> str:
        tokens, plain = self.speculative.tokens, self.plain.tokens
        return (
            f"temperature {self.settings.temperature:g}, {self.outputs} timed prompts, {tokens} "
            f"tokens and {plain} of plain decoding, alpha {self.alpha:g}"
        )

    def _in_words(self, found: Decisions, status: Status) -> str:
        if status is Status.ERROR:
            return (
                "its own plain decoding does not follow the target's law: "
                f"{reason(found.plain)}; speculation is not to blame"
            )
        if status is Status.FAIL:
            return f"tokens do not follow the target's law: {reason(found.speculative)}"
        if status is Status.PASS:
            return "every token is accounted for by the target's law"
        if found.speculative.rejected:
            return (
                f"{reason(found.speculative)}, but not by enough more than its plain decoding: the "
                "oracle may not be quite this engine's"
            )
        needed, effective = self.reach.gross, self.reach.effective
        if math.isinf(needed):
            return "on these prompts no number of tokens shows even a gross fault"
        return (
            f"too few tokens to show even a gross fault: they tell as much as {effective:.0f} "
            f"drafted ones, and {math.ceil(needed)} are needed; take more --prompts, "
            "--max-new-tokens or --profile full"
        )


def _at(process: EProcess) -> tuple[int, float]:
    """Tokens, and log10 wealth after them."""
    return process.tokens, round(process.log_wealth / math.log(10), 2)


def _thinned(path: Path) -> Path:
    """At most ``MOST`` points of it, the first and the last among them."""
    step = max(1, math.ceil((len(path) - 1) / (MOST - 1)))
    return [*path[:-1:step], path[-1]]


def _finite(value: float) -> int | None:
    return math.ceil(value) if math.isfinite(value) else None


def judge(
    pair: ModelPair,
    rows: Sequence[GenerationRow],
    prompts: Prompts,
    settings: Settings,
    capabilities: Collection[str],
    alpha: float,
) -> Verdict:
    """The verdict on one decoder's sampled outputs.

    Parameters
    ----------
    rows : sequence of GenerationRow
        All of the decoder, in the order of measurement; those without two good outputs are left
        out here, and are errors where rows are counted.
    alpha : float
        Probability of calling this decoder wrong, or its plain arm, if they are right.
    """
    evidence = Evidence(pair, settings, "model_draft" in capabilities, alpha)
    try:
        for row in filter(timeable, rows):
            evidence.take_in(row, prompts[row.task, row.prompt_id])
    except ValueError as error:  # logits that are no numbers
        return Verdict(check=EVIDENCE, status=Status.ERROR, message=str(error))
    if not evidence.outputs:
        words = "no prompt gave two outputs that could be judged"
        return Verdict(check=EVIDENCE, status=Status.INCONCLUSIVE, message=words)
    verdict = evidence.verdict()
    if "declared_lossy" in capabilities and verdict.status is not Status.ERROR:
        words = f"lossy by design, and measured: {verdict.message}"
        return msgspec.structs.replace(
            verdict, status=Status.UNSUPPORTED, message=words, ruled_out=""
        )
    return verdict


def as_row(decoder: str, settings: Settings, seconds: float, verdict: Verdict) -> VerdictRow:
    """The verdict as it stands in a record."""
    return VerdictRow(
        decoder=decoder,
        item=f"{EVIDENCE}[T={settings.temperature:g}]",
        suite="benchmark",
        seconds=round(seconds, 3),
        verdict=verdict,
    )
