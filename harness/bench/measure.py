"""The paired timing loop: every prompt plainly and speculatively, one right after the other.

What slows a machine down for a while then slows both arms down, and their ratio stands. Which arm
goes first alternates from prompt to prompt (ABBA), and decoders take turns in a shuffled order.
The clock and the token count are the harness's own.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from harness.bench.probes import PeakMemory, first_seconds
from harness.bench.workload import Prompt
from harness.checks.greedy import wrong_end
from harness.contract import Completion, Decoder, FinishReason, Metrics, Request, Round, Sampling
from harness.record import COUNTS, PARTS, GenerationRow
from harness.said import words_of

Judge = Callable[[Request, Completion], tuple[str, dict[str, Any]]]
"""What is wrong with a greedy completion, and the evidence: ``checks.greedy.problem_of`` a pair."""

Arm = Literal["plain", "speculative"]
ARMS: tuple[Arm, Arm] = ("plain", "speculative")
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Settings:
    """What both arms of every trial share."""

    max_new_tokens: int
    draft_tokens: int
    vocab_size: int
    temperature: float = 0.0
    eos: tuple[int, ...] = ()
    seed: int = 0
    batch_size: int = 1


@dataclass(frozen=True)
class Trial:
    """One prompt, to be decoded by both arms of one decoder."""

    decoder: str
    prompt: Prompt
    repeat: int
    first: Arm


@dataclass(frozen=True)
class Outcome:
    """What one arm gave, checked."""

    tokens: list[int] = field(default_factory=list)
    seconds: float = 0.0
    finish_reason: str = ""
    rounds: list[Round] | None = None
    parts: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    peak_bytes: int | None = None
    first_seconds: float | None = None

    def completion(self) -> Completion:
        """The outcome as a check takes it."""
        reason = cast(FinishReason, self.finish_reason)
        return Completion(tokens=self.tokens, finish_reason=reason)


def schedule(
    decoders: Sequence[str], prompts: Sequence[Prompt], repeats: int, seed: int
) -> list[Trial]:
    """Every prompt by every decoder, in an order that favours no task, decoder or arm.

    Tasks take turns, so that a run that is cut short has measured some of each.
    """
    generator = random.Random(seed)
    tasks = list(dict.fromkeys(prompt.task for prompt in prompts))
    seen: Counter[str] = Counter()
    numbered = []
    for prompt in prompts:
        numbered.append((seen[prompt.task], tasks.index(prompt.task), prompt))
        seen[prompt.task] += 1
    trials = []
    for repeat in range(repeats):
        for number, task, prompt in sorted(numbered, key=lambda item: item[:2]):
            first = ARMS[(number + task + repeat) % 2]
            order = generator.sample(decoders, len(decoders))
            trials += [Trial(decoder, prompt, repeat, first) for decoder in order]
    return trials


def missing_capabilities(decoder: Decoder, settings: Settings) -> list[str]:
    """Capabilities without which a decoder cannot be measured."""
    sampling = Sampling(temperature=settings.temperature)
    request = Request(prompt=(0,), max_new_tokens=1, sampling=sampling, speculate=False)
    needed = request.capabilities() | ({"batch"} if settings.batch_size > 1 else set())
    return sorted(needed - decoder.capabilities)


def measure(
    decoders: Mapping[str, Decoder],
    trials: Sequence[Trial],
    settings: Settings,
    judge: Judge,
    synchronise: Callable[[], None] = lambda: None,
    memory: PeakMemory | None = None,
) -> Iterator[GenerationRow]:
    """Run the trials, one row each; a decoder that fails gives a row that says so.

    Parameters
    ----------
    decoders : mapping of str to Decoder
    trials : sequence of Trial
    settings : Settings
    judge : callable
        Asked where greedy outputs differ: which of them is the target's?
    synchronise : callable
        Waits for the device, before the clock is read.
    memory : PeakMemory, optional
        Where the device tells how much of it was used.
    """

    def first_token(trial: Trial, arm: Arm) -> float | None:
        # One block and a token: a stream that cannot be cancelled is soon at its end.
        few = settings.draft_tokens + 2
        request = make_request(decoders[trial.decoder], trial, settings, arm, few)
        return first_seconds(decoders[trial.decoder], request, synchronise)

    for trial in {trial.decoder: trial for trial in trials}.values():
        for arm in ARMS:  # its failures show again when they count
            request = make_request(decoders[trial.decoder], trial, settings, arm, WARM_UP_TOKENS)
            run_arm(decoders[trial.decoder], request, settings, synchronise)
            first_token(trial, arm)
    for trial in trials:
        decoder = decoders[trial.decoder]
        second: Arm = "speculative" if trial.first == "plain" else "plain"
        outcomes = {
            arm: run_arm(
                decoder, make_request(decoder, trial, settings, arm), settings, synchronise, memory
            )
            for arm in (trial.first, second)
        }
        # After both, so that nothing comes between the two calls that are compared.
        for arm in (trial.first, second):
            if not outcomes[arm].error:
                found = first_token(trial, arm)
                outcomes[arm] = replace(outcomes[arm], first_seconds=found)
        request = make_request(decoder, trial, settings, "speculative")
        yield make_row(trial, request, outcomes["plain"], outcomes["speculative"], judge)


def make_request(
    decoder: Decoder, trial: Trial, settings: Settings, arm: Arm, at_most: int | None = None
) -> Request:
    """The request of one arm: the same for both but for ``speculate``."""
    sampled = settings.temperature > 0
    name = f"{settings.seed} {trial.prompt.prompt_id} {trial.repeat}"
    seed = random.Random(name).getrandbits(31)
    return Request(
        prompt=trial.prompt.ids,
        max_new_tokens=min(settings.max_new_tokens, at_most or settings.max_new_tokens),
        sampling=Sampling(temperature=settings.temperature),
        seed=seed if sampled and "seed" in decoder.capabilities else None,
        eos=settings.eos if "eos" in decoder.capabilities else (),
        speculate=arm == "speculative",
        draft_tokens=settings.draft_tokens,
    )


def run_arm(
    decoder: Decoder,
    request: Request,
    settings: Settings,
    synchronise: Callable[[], None],
    memory: PeakMemory | None = None,
) -> Outcome:
    """Time one ``generate`` and check the form of its answer."""
    try:
        if memory:
            memory.reset()
        synchronise()
        started = time.perf_counter()
        answers = decoder.generate([request])
        synchronise()
        seconds = time.perf_counter() - started
        peak = memory.read() if memory else None
        return replace(checked(answers, seconds, settings.vocab_size), peak_bytes=peak)
    except Exception as error:  # whatever a stranger's decoder raises
        reason = (words_of(error).strip() or "no message").splitlines()[0]
        return Outcome(error=f"{type(error).__name__}: {reason}")


def checked(answers: Sequence[Completion], seconds: float, vocab_size: int) -> Outcome:
    """The outcome of one request; what is wrong with the form of its answer is its error."""
    if len(answers) != 1:
        return Outcome(error=f"{len(answers)} completions for 1 request")
    answer = answers[0]
    tokens = [int(token) for token in answer.tokens]
    rounds = answer.rounds
    error = ""
    if not tokens:
        error = "empty output"
    elif outside := [token for token in tokens if not 0 <= token < vocab_size]:
        error = f"token id {outside[0]} is outside the vocabulary 0..{vocab_size - 1}"
    elif any(not 0 <= r.accepted <= r.drafted for r in rounds or []):
        error = "a round accepts more tokens than it drafted"
    reason, parts, counts = str(answer.finish_reason), _parts(answer.metrics), _counts(answer)
    return Outcome(tokens, seconds, reason, rounds, parts, counts, error)


def _parts(metrics: Metrics | None) -> dict[str, float]:
    """Seconds by part of the work, as far as the decoder tells."""
    told = {name: getattr(metrics, f"{name}_seconds", None) for name in PARTS}
    numbers = {name: value for name, value in told.items() if value is not None}
    return {name: round(v, 7) for name, v in numbers.items() if math.isfinite(v)}


def _counts(answer: Completion) -> dict[str, int]:
    """What the decoder counts, as far as it tells; every round is a target call."""
    told = {name: getattr(answer.metrics, name, None) for name in COUNTS}
    if told["target_calls"] is None and answer.rounds is not None:
        told["target_calls"] = len(answer.rounds)
    return {name: int(count) for name, count in told.items() if count is not None}


def make_row(
    trial: Trial, request: Request, plain: Outcome, speculative: Outcome, judge: Judge
) -> GenerationRow:
    """Compare both outcomes of a trial."""
    greedy = request.sampling.greedy
    identical, near_tie, fault, error = None, "", "", ""
    if plain.error or (broken := wrong_end(request, plain.completion())):
        error = f"plain decoding: {plain.error or broken}"
    elif speculative.error:
        error = f"speculative decoding: {speculative.error}"
    elif not greedy:
        if broken := wrong_end(request, speculative.completion()):
            error = f"speculative decoding: {broken}"
    elif speculative.completion() == plain.completion():
        identical = True
        if of_plain := judge(request, plain.completion())[0]:  # both may be wrong alike
            error = f"plain decoding is not the target's: {of_plain}"
    else:
        identical = False
        of_plain, plain_evidence = judge(request, plain.completion())
        fault, evidence = judge(request, speculative.completion())
        if of_plain:
            fault, error = "", f"plain decoding is not the target's: {of_plain}"
        elif not fault:  # then one of the two took the other token of a near-tie
            ties = [*evidence.get("near_ties", []), *plain_evidence.get("near_ties", [])]
            near_tie = "; ".join(ties)
    rounds = speculative.rounds
    return GenerationRow(
        decoder=trial.decoder,
        task=trial.prompt.task,
        prompt_id=trial.prompt.prompt_id,
        repeat=trial.repeat,
        prompt_tokens=len(request.prompt),
        plain_tokens=plain.tokens,
        plain_seconds=plain.seconds,
        tokens=speculative.tokens,
        seconds=speculative.seconds,
        first=trial.first,
        plain_finish_reason=plain.finish_reason,
        finish_reason=speculative.finish_reason,
        drafted=[r.drafted for r in rounds] if rounds is not None else None,
        accepted=[r.accepted for r in rounds] if rounds is not None else None,
        plain_parts=plain.parts,
        parts=speculative.parts,
        plain_counts=plain.counts,
        counts=speculative.counts,
        plain_first_seconds=plain.first_seconds,
        first_seconds=speculative.first_seconds,
        plain_peak_bytes=plain.peak_bytes,
        peak_bytes=speculative.peak_bytes,
        identical=identical,
        near_tie=near_tie,
        fault=fault,
        error=error,
    )
