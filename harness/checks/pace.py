"""A budget that a slow decoder can keep: as many generations as it manages in some seconds.

The fewer there are, the less a PASS rules out, and what is left too small to show anything is
INCONCLUSIVE: tests say so themselves.
"""

from __future__ import annotations

import time
from dataclasses import replace

from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Refused, Subject
from harness.contract import Request, Sampling

TIMED = 48  # generations whose time is taken, together
NEW_TOKENS = 6  # about what a counted generation has
ARMS = 2  # plain decoding answers as much
FEWEST = 50  # generations, however slow they are


def within(budget: Budget, seconds: float, pace: float) -> Budget:
    """The budget, with no more samples than take about that long in one test.

    Parameters
    ----------
    pace : float
        ``generations_per_second``.
    """
    most = seconds * pace / ARMS
    return replace(budget, samples=int(min(budget.samples, max(FEWEST, most))))


def generations_per_second(subject: Subject) -> float:
    """How many short generations the decoder makes; infinitely many where it makes none at all."""
    sampled = "sampling" in subject.decoder.capabilities
    requests = [
        Request(
            prompt=random_prompt(subject.pair, 4, i),
            max_new_tokens=NEW_TOKENS,
            sampling=Sampling(temperature=float(sampled)),
        )
        for i in range(TIMED)
    ]
    try:
        subject.ask(requests[:1])  # what is done only once is not counted
        begin = time.perf_counter()
        subject.ask(requests)
    except Refused:
        return float("inf")
    return TIMED / (time.perf_counter() - begin)
