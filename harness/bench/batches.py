"""The paired timing of batches: the same requests at once, plainly and speculatively.

Every request of a batch gives a row. Its seconds are those of the batch in proportion to its
tokens, so that seconds per token are the batch's, and its ratio counts once (``summary``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from harness.bench.measure import (
    ARMS,
    WARM_UP_TOKENS,
    Arm,
    Judge,
    Outcome,
    Settings,
    Trial,
    checked,
    make_request,
    make_row,
    schedule,
)
from harness.bench.tasks import WorkloadError
from harness.bench.workload import Prompt
from harness.contract import Decoder, Request
from harness.record import GenerationRow

Batch = list[Trial]


def batches_of(prompts: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """Full batches of one task each, in the order of the prompts; what is left over is left out.

    Raises
    ------
    WorkloadError
        If a task has fewer prompts than one batch takes.
    """
    tasks: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        tasks.setdefault(prompt.task, []).append(prompt)
    for task, own in tasks.items():
        if len(own) < size:
            raise WorkloadError(
                f"a batch of {size} takes {size} prompts, the task {task!r} has {len(own)} here: "
                f"choose a larger --prompts or --profile, or a smaller batch"
            )
    return [
        own[i : i + size] for own in tasks.values() for i in range(0, len(own) - size + 1, size)
    ]


def schedule_batches(
    decoders: Sequence[str], batches: Sequence[Sequence[Prompt]], repeats: int, seed: int
) -> list[Batch]:
    """Every batch by every decoder, in the order in which single prompts are measured."""
    by_first = {(batch[0].task, batch[0].prompt_id): batch for batch in batches}
    leaders = schedule(decoders, [batch[0] for batch in batches], repeats, seed)
    return [
        [replace(trial, prompt=p) for p in by_first[trial.prompt.task, trial.prompt.prompt_id]]
        for trial in leaders
    ]


def measure_batches(
    decoders: Mapping[str, Decoder],
    batches: Sequence[Batch],
    settings: Settings,
    judge: Judge,
    synchronise: Callable[[], None] = lambda: None,
) -> Iterator[GenerationRow]:
    """Run the batches, a row for each of their requests; as ``measure`` does single prompts."""

    def run(batch: Batch, arm: Arm, at_most: int | None = None) -> list[Outcome]:
        decoder = decoders[batch[0].decoder]
        requests = [make_request(decoder, trial, settings, arm, at_most) for trial in batch]
        return run_batch(decoder, requests, settings, synchronise)

    for batch in {batch[0].decoder: batch for batch in batches}.values():
        for arm in ARMS:
            run(batch, arm, WARM_UP_TOKENS)
    for batch in batches:
        first = batch[0].first
        second: Arm = "speculative" if first == "plain" else "plain"
        outcomes = {arm: run(batch, arm) for arm in (first, second)}
        name = f"{batch[0].prompt.prompt_id} and {len(batch) - 1} more"
        for trial, plain, fast in zip(
            batch, outcomes["plain"], outcomes["speculative"], strict=True
        ):
            request = make_request(decoders[trial.decoder], trial, settings, "speculative")
            row = make_row(trial, request, plain, fast, judge)
            yield msgspec.structs.replace(row, batch=name)


def run_batch(
    decoder: Decoder,
    requests: Sequence[Request],
    settings: Settings,
    synchronise: Callable[[], None],
) -> list[Outcome]:
    """Time one ``generate`` of all requests, and share its seconds among them by their tokens."""
    try:
        synchronise()
        started = time.perf_counter()
        answers = decoder.generate(requests)
        synchronise()
        seconds = time.perf_counter() - started
        if len(answers) != len(requests):
            raise ValueError(f"{len(answers)} completions for {len(requests)} requests")
        total = max(1, sum(len(answer.tokens) for answer in answers))
        shares = [len(answer.tokens) / total for answer in answers]
        outcomes = [
            checked([answer], seconds * share, settings.vocab_size)
            for answer, share in zip(answers, shares, strict=True)
        ]
    except Exception as error:  # whatever a stranger's decoder raises
        reason = (str(error).strip() or "no message").splitlines()[0]
        return [Outcome(error=f"{type(error).__name__}: {reason}")] * len(requests)
    # A decoder tells its parts for all requests that were decoded together.
    return [
        replace(outcome, parts={part: spent * share for part, spent in outcome.parts.items()})
        for outcome, share in zip(outcomes, shares, strict=True)
    ]
