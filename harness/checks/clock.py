"""The seconds that a decoder reports, by a clock of the harness's own."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any, NamedTuple

from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict

CALLS = 8  # of each kind that is timed
LONG = 1024  # tokens of a long prompt, if the context has room
STANDS_OUT = 0.25  # share of a call that its prompt must cost to be looked for in the seconds
SHARE = 0.5  # of that cost: more must not be missing


@check("metrics.clock", "metrics")
def clock(subject: Subject, budget: Budget) -> Verdict:
    """The seconds begin with the prompt, and are no more than passed, in both arms.

    A long prompt and one of one token, for an output of one token each: what the long one takes
    longer is what its prompt costs, and must not be missing from the seconds. Of several calls
    the best counts, so that a busy machine blames nobody; where the prompt does not stand out of
    what a call costs anyway, nothing is claimed.

    Kills alone: plain_clock_starts_late, clock_starts_late.
    """
    name, pair = "metrics.clock", subject.pair
    sampling = Sampling(temperature=0.0 if "greedy" in subject.decoder.capabilities else 1.0)
    arms = ["speculative", "plain"] if "plain" in subject.decoder.capabilities else ["speculative"]
    evidence: dict[str, Any] = {}
    claimed = []
    for arm in arms:
        long, short = (
            Request(
                prompt=random_prompt(pair, length, budget.seed),
                max_new_tokens=1,
                sampling=sampling,
                speculate=arm == "speculative",
            )
            for length in (min(pair.context_length, LONG) - 1, 1)
        )
        if not subject.supports(long):
            continue
        calls = [(_timed(subject, long), _timed(subject, short)) for _ in range(CALLS)]
        if any(math.isnan(timed.reported) for call in calls for timed in call):
            continue
        took, outside = (
            [min(getattr(timed, what) for timed in kind) for kind in zip(*calls, strict=True)]
            for what in ("took", "outside")
        )
        cost, missing = took[0] - took[1], outside[0] - outside[1]
        evidence[arm] = {
            "reported": [timed.reported for timed, _ in calls],
            "took": [timed.took for timed, _ in calls],
            "prompt_costs": cost,
            "missing": missing,
        }
        problem = ""
        if all(timed.outside < 0 for call in calls for timed in call):
            problem = f"{calls[0][0].reported:.3g} seconds are reported of {calls[0][0].took:.3g}"
        elif cost > STANDS_OUT * took[0]:
            claimed.append(arm)
            if missing > SHARE * cost:
                problem = (
                    f"a prompt of {len(long.prompt)} tokens costs {cost:.3g} seconds, of which "
                    f"{missing:.3g} are missing from those that the {arm} arm reports"
                )
        if problem:
            return Verdict(
                check=name,
                status=Status.FAIL,
                message=problem,
                likely_fault="the clock starts behind the prompt, or counts another unit",
                fault_class=FaultClass.METRICS,
                evidence=evidence,
                repro=repro(subject, [long]),
            )
    if not evidence:
        raise Unsupported("no seconds are reported for the requests that the decoder takes")
    begin = f"; a clock that begins behind the prompt ({' and '.join(claimed)} arm)"
    return Verdict(
        check=name,
        status=Status.PASS,
        message="the seconds that are reported fit those that passed",
        ruled_out="more seconds than passed" + (begin if claimed else ""),
        evidence=evidence,
    )


class Timed(NamedTuple):
    """Seconds of one call, as the decoder reports them and by the harness's own clock."""

    reported: float
    took: float

    @property
    def outside(self) -> float:
        """What passed and was not reported."""
        return self.took - self.reported


def _timed(subject: Subject, request: Request) -> Timed:
    begin = perf_counter()
    completion = subject.ask_one(request)
    took = perf_counter() - begin
    reported = completion.metrics.seconds if completion.metrics else None
    return Timed(math.nan if reported is None else reported, took)
