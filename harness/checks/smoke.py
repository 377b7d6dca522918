"""Is the adapter wired up? Before anything is said about the decoder behind it."""

from __future__ import annotations

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import CAPABILITIES, Completion, Request, Sampling
from harness.verdict import Status, Verdict

_NAME = "smoke.wired"
LONG = 48  # ids of the prompt


def _error(subject: Subject, request: Request, message: str) -> Verdict:
    return Verdict(
        check=_NAME, status=Status.ERROR, message=message, repro=repro(subject, [request])
    )


@check(_NAME)
def wired(subject: Subject, budget: Budget) -> Verdict:
    """Known capabilities, well-formed completions, the right model behind the plain arm."""
    unknown = set(subject.decoder.capabilities) - set(CAPABILITIES)
    sampling = Sampling(temperature=0 if "greedy" in subject.decoder.capabilities else 1)
    # Long enough for wrong rotary frequencies to show, which move near tokens little.
    prompt = random_prompt(subject.pair, min(LONG, subject.pair.context_length // 2), budget.seed)
    request = Request(prompt=prompt, max_new_tokens=8, sampling=sampling)
    if unknown:
        known = ", ".join(CAPABILITIES)
        return _error(
            subject, request, f"unknown capabilities {sorted(unknown)}: known are {known}"
        )
    completion = subject.ask_one(request)
    if "rounds" in subject.decoder.capabilities and completion.rounds is None:
        return _error(subject, request, "rounds are declared, and none is reported")
    if problem := wrong_counts(completion):
        return _error(subject, request, problem)
    plain = Request(prompt=request.prompt, max_new_tokens=8, sampling=sampling, speculate=False)
    if sampling.greedy and subject.supports(plain):
        verdict = greedy.judge(subject, _NAME, plain, subject.ask_one(plain))
        if not verdict.passed:
            message = (
                f"plain decoding is not the target's (wrong model or adapter?): {verdict.message}"
            )
            return _error(subject, plain, message)
    return Verdict(
        check=_NAME,
        status=Status.PASS,
        message="the decoder answers in the contract's form, and its plain arm is the target",
        ruled_out="a miswired adapter: wrong model, wrong ids, empty output",
    )


def wrong_counts(completion: Completion) -> str:
    """Which identity the reported rounds break, empty if none (or none are reported)."""
    if completion.rounds is None:
        return ""
    if not completion.rounds:
        return "rounds are reported, and there is none"
    for number, entry in enumerate(completion.rounds):
        if not 0 <= entry.accepted <= entry.drafted:
            return f"round {number} accepts {entry.accepted} of {entry.drafted} drafted tokens"
    emitted = sum(entry.accepted + 1 for entry in completion.rounds)
    last = completion.rounds[-1].accepted + 1
    # The last round may be cut short by the end of the output; the ones before it may not.
    if not emitted - last < len(completion.tokens) <= emitted:
        return f"rounds emit {emitted} tokens, the output has {len(completion.tokens)}"
    return ""
