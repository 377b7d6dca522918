"""A failure made smaller for as long as it still fails.

Every try asks a decoder, which may be slow: their number is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from harness.checks.reproduce import Call, program
from harness.checks.smaller import WAYS, Way, only_with, with_item, without_a_part
from harness.checks.subject import MOST_IN_REPRO, Subject
from harness.contract import Request, validate
from harness.verdict import FaultClass, Status, Verdict

Thing = TypeVar("Thing")
Found = TypeVar("Found")
TRIES = 60
SECONDS = 60.0  # of tries on a slow decoder
CALLS_ANEW = 400  # of programs whose calls spoil each other
REPRODUCED = "reproduced"  # of evidence: False where a failure did not come again


def may_be_blamed(verdict: Verdict) -> bool:
    """Whether asking again, with something left out, can tell what a FAIL needs to show.

    Not where it did not come again when asked in full: it comes by chance.
    """
    return verdict.status is Status.FAIL and verdict.evidence.get(REPRODUCED, True)


def smallest(
    subject: Subject,
    request: Request,
    still_fails: Callable[[Request], bool],
    tries: int = TRIES,
) -> Request:
    """The smallest request found that still fails.

    Fewer parameters, drafted tokens, new tokens and prompt ids, and these as 0, each for as long
    as it goes on failing.

    Parameters
    ----------
    still_fails : callable
        Asks the decoder once.
    tries : int
        How often it may.
    """

    def within(way: Way[Request]) -> Way[Request]:
        return lambda request: (r for r in way(request) if makes_sense(subject, r))

    return _descend(request, [within(way) for way in WAYS], _Tries(still_fails, tries))


def in_short(
    subject: Subject,
    calls: Sequence[Call],
    verdict: Verdict,
    offender: Callable[[Subject, Sequence[Call]], Found | None],
    judge: Callable[[Subject, Found], Verdict],
) -> Verdict:
    """The verdict on the smallest calls found that fail in the same way, and their program.

    Parameters
    ----------
    calls : sequence of Call
        All that were made, the last of which failed.
    verdict : Verdict
        On that one.
    offender : callable
        Makes calls on a decoder; what is wrong with the last answer in the same way, or None.
    judge : callable
        The verdict on that.
    """
    fewest = reproduced(subject, calls, lambda on, some: offender(on, some) is not None)
    found = offender(anew := subject.anew(), fewest) if fewest else None
    if found is None:
        return replace(
            verdict,
            message=f"{verdict.message} (not again when asked again)",
            likely_fault="",  # what is asked once more to tell it may come out right by chance
            # A seed that does not repeat is that very fault.
            fault_class=kind if (kind := verdict.fault_class) is FaultClass.RANDOMNESS else None,
            evidence=verdict.evidence | {REPRODUCED: False},
            repro=program(subject, calls[-MOST_IN_REPRO:]),
        )
    verdict = replace(judge(anew, found), repro=program(subject, fewest))
    *before, last = fewest
    if before:
        closed = any(call.pieces for call in before)
        return replace(
            verdict,
            message=f"{verdict.message} (after {len(before)} other calls; alone it is right)",
            likely_fault=f"{'a closed stream' if closed else 'an earlier call'} leaves its state",
            fault_class=FaultClass.STREAM if closed else FaultClass.CACHE,
        )
    if len(last.requests) > 1:
        return replace(
            verdict,
            message=f"{verdict.message} (in a batch; alone it is right)",
            likely_fault="rows of a batch are mixed up",
            fault_class=FaultClass.BATCH,
        )
    if len(calls[-1].requests) > 1:
        verdict = replace(verdict, message=f"{verdict.message} (alone as in a batch)")
    promised_to_both = verdict.fault_class is FaultClass.RANDOMNESS  # a seed repeats in either arm
    if verdict.status is Status.FAIL and not (last.requests[0].speculate or promised_to_both):
        message = f"{verdict.message}; this is plain decoding: speculation is not to blame"
        return replace(
            verdict, status=Status.ERROR, message=message, fault_class=FaultClass.CONTRACT
        )
    needed, kind = only_with(last.requests[0])
    if kind and verdict.fault_class not in (FaultClass.END, FaultClass.CONTRACT):
        likely = f"it takes {' and '.join(needed)} to show it"
        verdict = replace(verdict, likely_fault=likely, fault_class=kind)
    return verdict


def reproduced(
    subject: Subject,
    calls: Sequence[Call],
    fails: Callable[[Subject, Sequence[Call]], bool],
) -> Sequence[Call]:
    """The smallest list of calls found that fails on a decoder built anew; empty if none does.

    The last call alone where that is enough; else with as many before it as it takes: then it
    is their state that spoils it.
    """
    alone = calls[-1:]
    if fails(subject, alone):
        smaller = smallest_calls(subject, alone, lambda some: fails(subject, some))
        if fails(subject.anew(), smaller):
            return smaller
    for enough in (alone, calls):
        if fails(subject.anew(), enough):
            return smallest_calls(
                subject, enough, lambda some: fails(subject.anew(), some), CALLS_ANEW
            )
    return []


def smallest_calls(
    subject: Subject,
    calls: Sequence[Call],
    still_fails: Callable[[Sequence[Call]], bool],
    tries: int = TRIES,
) -> Sequence[Call]:
    """The smallest list of calls found of which the last one still fails.

    Fewer calls, fewer requests in each, and smaller ones.

    Parameters
    ----------
    still_fails : callable
        Makes these calls on a decoder.
    tries : int
        How many calls it may make in all.
    """

    def of_any(way: Way[Request]) -> Way[Sequence[Call]]:
        def smaller(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
            for i, call in enumerate(calls):
                for j, request in enumerate(call.requests):
                    for r in way(request):
                        if makes_sense(subject, r):
                            rows = tuple(with_item(call.requests, j, r))
                            yield with_item(calls, i, replace(call, requests=rows))

        return smaller

    ways = [_fewer_calls, _fewer_rows, *(of_any(way) for way in WAYS)]
    return _descend(calls, ways, _Tries(still_fails, tries, cost=len))


class _Tries(Generic[Thing]):
    """Asks whether a thing fails, never twice about the same; says no when it may not ask more."""

    def __init__(
        self,
        fails: Callable[[Thing], bool],
        tries: int,
        cost: Callable[[Thing], int] = lambda _: 1,
    ) -> None:
        self._fails, self._left, self._cost = fails, tries, cost
        self._known: dict[str, bool] = {}
        self._end = time.monotonic() + SECONDS

    def __call__(self, thing: Thing) -> bool:
        key, cost = repr(thing), self._cost(thing)
        if key not in self._known:
            if cost > self._left or time.monotonic() > self._end:
                return False
            self._left -= cost
            self._known[key] = self._fails(thing)
        return self._known[key]


def _descend(thing: Thing, ways: Sequence[Way[Thing]], fails: Callable[[Thing], bool]) -> Thing:
    """Each way for as long as it leads on, and all of them until none does."""
    before: Thing | None = None
    while before != thing:
        before = thing
        for way in ways:
            while (
                found := next((s for s in way(thing) if s != thing and fails(s)), None)
            ) is not None:
                thing = found
    return thing


def makes_sense(subject: Subject, request: Request) -> bool:
    """Whether the decoder has to answer it."""
    try:
        validate(request, subject.pair)
    except ValueError:
        return False
    return subject.supports(request)


def _fewer_calls(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    *before, last = calls
    for kept in without_a_part(before):
        yield [*kept, last]


def _fewer_rows(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    for i, call in enumerate(calls):
        alone = [[request] for request in call.requests]
        for kept in (*alone, *without_a_part(call.requests)):
            if kept:
                yield with_item(calls, i, replace(call, requests=tuple(kept)))
