"""Any request, and any sequence of them: Hypothesis draws, and what is certain is judged.

Hypothesis only draws: a p-value never sits here, and what fails is made smaller by ``minimise``,
which asks no oftener than it may and knows that earlier calls may have spoilt a decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from harness import oracle
from harness.checks import certain, minimise
from harness.checks.budget import Budget
from harness.checks.certain import Wrong
from harness.checks.prompts import random_prompt
from harness.checks.reproduce import Call, program
from harness.checks.requests import GREEDY, HOT, requests, token_lists
from harness.checks.subject import Refused, Subject, check
from harness.contract import Completion, Request
from harness.verdict import Status, Verdict
from reference_impl.autoregressive import finished

STEPS = 10  # calls of one sequence
WHICH = st.integers(0, 2**16)  # of what is there
TIMES = 4  # that a seed is asked for, where it was found not to repeat
LARGEST = 256  # ids of a vocabulary over which grammars are drawn


class Session:
    """Calls on one decoder, each answer judged, up to the first that is wrong.

    Attributes
    ----------
    calls : list of Call
    answered : list of (Request, Completion)
        All rows that were decoded to their end.
    wrong : Wrong or None
        With the last of the calls.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.calls: list[Call] = []
        self.answered: list[tuple[Request, Completion]] = []
        self.wrong: Wrong | None = None
        self._seeded: dict[str, list[int]] = {}

    def make(self, *asked: Request, pieces: int | None = None) -> None:
        """Make one more call; nothing, once something was wrong."""
        if self.wrong or not asked:
            return
        self.calls.append(call := Call(asked, pieces))
        try:
            completions = self.subject.make(call)
        except Refused as error:
            self.wrong = Wrong("refused", str(error), error.requests[0])
            return
        for request, completion in zip(asked, completions, strict=True):
            if pieces is not None:
                self.wrong = self._wrong_beginning(request, completion.tokens)
            else:
                self.answered.append((request, completion))
                self.wrong = certain.wrong(self.subject, request, completion)
            if self.wrong:
                return
        if len(asked) == 1 and pieces is None:
            self.wrong = self._wrong_seed(asked[0], completions[0])

    def _wrong_beginning(self, request: Request, tokens: list[int]) -> Wrong | None:
        """What came of a stream before it was closed is judged as if no more had been wanted."""
        if not tokens:
            return None
        request = replace(request, max_new_tokens=len(tokens))
        reason = finished(tokens, request) or "length"
        found = Completion(tokens=tokens, finish_reason=reason)
        return certain.wrong_ids(self.subject.pair, request, found)

    def _wrong_seed(self, request: Request, completion: Completion) -> Wrong | None:
        """A request with a seed gives the same ids whenever it is asked alone."""
        if request.sampling.greedy or request.seed is None:
            return None
        first = self._seeded.setdefault(repr(request), completion.tokens)
        if completion.tokens == first:
            return None
        says = f"seed {request.seed} gave other ids before"
        return Wrong("seed", says, request, completion, {"first": first})


def _drawn(subject: Subject, budget: Budget) -> st.SearchStrategy[Request]:
    """Requests within the declared capabilities; their ends are ids that the target likes."""
    pair, declared = subject.pair, set(subject.decoder.capabilities)
    if pair.vocab_size > LARGEST:
        declared.discard("grammar")
    temperatures = [GREEDY, GREEDY] * ("greedy" in declared) + [HOT] * ("sampling" in declared)
    likely = oracle.greedy_path(pair, random_prompt(pair, 4, budget.seed), 24)
    ends = st.sampled_from(sorted(set(likely)))
    return requests(pair.vocab_size, st.one_of(temperatures), budget.new_tokens, declared, ends)


def _ending_early(
    subject: Subject, request: Request, tokens: Sequence[int], number: int
) -> Sequence[Request]:
    """The request with one of its answer's tokens as EOS, or some as stop sequence; if it may."""
    at = number // 4 % len(tokens)
    eos = replace(request, eos=(*request.eos, tokens[at]))
    stop = replace(request, stop=(*request.stop, tuple(tokens[max(0, at - number % 2) : at + 1])))
    either = [stop, eos] if number // 2 % 2 else [eos, stop]
    return [ended for ended in either if minimise.makes_sense(subject, ended)][:1]


def _settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@check("properties.requests")
def any_request(subject: Subject, budget: Budget) -> Verdict:
    """Whole requests, alone and in small batches: every parameter beside every other.

    Prompt, length, K, temperature, filters, penalties, bias, grammar, EOS, stop sequences,
    min_new_tokens, seed, logprobs, speculation. One with a seed is asked twice, another one again
    with an end at a token of its answer.

    Kills alone: stop_forgotten_for_minimum.
    """
    name, session = "properties.requests", Session(subject)
    subject.require_one_of("greedy", "sampling")
    drawn = _drawn(subject, budget)
    alone = st.tuples(drawn)
    batches = st.lists(drawn, min_size=1, max_size=3).map(tuple)

    @hypothesis.seed(budget.seed)
    @_settings(budget.examples)
    @given(alone | batches if "batch" in subject.decoder.capabilities else alone, WHICH)
    def ask(batch: tuple[Request, ...], number: int) -> None:
        session.make(*batch)
        if session.wrong or len(batch) > 1:
            return
        request, completion = session.answered[-1]
        if request.seed is not None and not request.sampling.greedy:
            session.make(request)
        else:
            session.make(*_ending_early(subject, request, completion.tokens, number))

    ask()
    return _conclusion(session, name)


@check("properties.sequences")
def any_sequence(subject: Subject, budget: Budget) -> Verdict:
    """Calls on one decoder in any order: nothing that one leaves behind may spoil another.

    One request, a batch, a stream that is closed early and asked for again, a second turn that
    goes on from an earlier answer, the same request once more, its prompt with other parameters,
    an end at a token of its answer, another K, or no speculation.
    """
    name, session = "properties.sequences", Session(subject)
    subject.require_one_of("greedy", "sampling")
    machine = hypothesis.seed(budget.seed)(_machine(session, _drawn(subject, budget)))
    settings = _settings(-(-2 * budget.examples // STEPS))
    run_state_machine_as_test(machine, settings=settings)
    return _conclusion(session, name)


def _machine(session: Session, drawn: st.SearchStrategy[Request]) -> type[RuleBasedStateMachine]:
    pair, declared = session.subject.pair, session.subject.decoder.capabilities
    answered = precondition(lambda self: bool(session.answered))

    def earlier(number: int) -> tuple[Request, Completion]:
        return session.answered[-1 - number % len(session.answered)]

    class Calls(RuleBasedStateMachine):
        @rule(request=drawn)
        def one(self, request: Request) -> None:
            session.make(request)

        @precondition(lambda self: "batch" in declared)
        @rule(batch=st.lists(drawn, min_size=2, max_size=3))
        def several(self, batch: list[Request]) -> None:
            session.make(*batch)

        @precondition(lambda self: "stream" in declared)
        @rule(request=drawn, pieces=st.integers(1, 3))
        def closed_stream(self, request: Request, pieces: int) -> None:
            session.make(request, pieces=pieces)
            session.make(request)

        @answered
        @rule(number=WHICH, more=token_lists(pair.vocab_size, 1, 3))
        def next_turn(self, number: int, more: tuple[int, ...]) -> None:
            request, completion = earlier(number)
            longer = (*request.prompt, *completion.tokens, *more)
            if len(longer) + request.max_new_tokens <= pair.context_length:
                session.make(replace(request, prompt=longer))

        @answered
        @rule(number=WHICH)
        def once_more(self, number: int) -> None:
            session.make(earlier(number)[0])

        @answered
        @rule(number=WHICH, request=drawn)
        def same_prompt(self, number: int, request: Request) -> None:
            prompt = earlier(number)[0].prompt
            if len(prompt) + request.max_new_tokens <= pair.context_length:
                session.make(replace(request, prompt=prompt))

        @answered
        @rule(number=WHICH, at=WHICH)
        def ending_early(self, number: int, at: int) -> None:
            request, completion = earlier(number)
            session.make(*_ending_early(session.subject, request, completion.tokens, at))

        @answered
        @rule(number=WHICH, k=st.integers(1, 8), speculate=st.booleans())
        def otherwise(self, number: int, k: int, speculate: bool) -> None:
            request = earlier(number)[0]
            session.make(
                replace(request, draft_tokens=k, speculate=speculate or "plain" not in declared)
            )

    return Calls


def _conclusion(session: Session, name: str) -> Verdict:
    subject, wrong = session.subject, session.wrong
    if wrong is None:
        requests = [request for call in session.calls for request in call.requests]
        needed = {name for request in requests for name in request.capabilities()}
        return Verdict(
            check=name,
            status=Status.PASS,
            message=f"{len(session.calls)} drawn calls were answered as they may be",
            ruled_out="a wrong greedy id, an impossible token, a wrong end, rounds that do not add "
            f"up, a seed that does not repeat; drawn from: {', '.join(sorted(needed))}",
            evidence={"calls": len(session.calls)},
        )

    if wrong.kind == "seed" and (shorter := _unrepeated(subject, wrong.request)):
        code = program(subject, [Call((shorter,)), Call((shorter,))])
        return replace(certain.verdict_on(subject, name, wrong), repro=code)

    def offender(on: Subject, calls: Sequence[Call]) -> Wrong | None:
        again = Session(on)
        for call in calls:
            again.make(*call.requests, pieces=call.pieces)
        same = again.wrong and again.wrong.kind == wrong.kind and len(again.calls) == len(calls)
        return again.wrong if same else None

    def judge(on: Subject, found: Wrong) -> Verdict:
        return certain.verdict_on(on, name, found)

    return minimise.in_short(subject, session.calls, judge(subject, wrong), offender, judge)


def _unrepeated(subject: Subject, request: Request) -> Request | None:
    """The smallest request found that gives other ids every time it is asked.

    The request itself where it does so only now and then; None where it always repeats, so that it
    is earlier calls that made the difference.
    """

    def outputs(asked: Request) -> int:
        """Different ones in a few times."""
        try:
            return len({tuple(subject.ask_one(asked).tokens) for _ in range(TIMES)})
        except Refused:
            return 0

    if (different := outputs(request)) < 2:
        return None
    if different < TIMES:
        return request
    return minimise.smallest(
        subject, request, lambda asked: outputs(asked) == TIMES, minimise.TRIES // TIMES
    )
