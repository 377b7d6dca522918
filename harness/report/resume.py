"""Of a measurement that is gone on with: what is missing."""

from __future__ import annotations

from harness.bench.measure import Trial
from harness.resume import Kept


def missing(kept: Kept, trials: list[Trial]) -> list[Trial]:
    """Those that have no row yet."""
    done = {(row.decoder, row.task, row.prompt_id, row.repeat) for row in kept.generations}
    return [
        trial
        for trial in trials
        if (trial.decoder, trial.prompt.task, trial.prompt.prompt_id, trial.repeat) not in done
    ]


def judged(kept: Kept, decoder: str) -> bool:
    """Whether there is a verdict on a decoder."""
    return any(row.decoder == decoder for row in kept.verdicts)
