"""Requests that make no sense are refused, and do not spoil the next one."""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Subject, check, repro
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Verdict

_NAME = "robustness.bad_input"


def senseless(pair: ModelPair) -> Mapping[str, Request]:
    """Requests that a decoder has to refuse, by what is wrong with them."""
    prompt = random_prompt(pair, 4, 0)

    def sampled(**parameters: float) -> Request:
        sampling = Sampling(**{"temperature": 1.0, **parameters})  # type: ignore[arg-type]
        return Request(prompt=prompt, max_new_tokens=4, sampling=sampling)

    return {
        "empty prompt": Request(prompt=(), max_new_tokens=4),
        "id beyond the vocabulary": Request(prompt=(pair.vocab_size,), max_new_tokens=4),
        "negative id": Request(prompt=(-1,), max_new_tokens=4),
        "no new tokens": Request(prompt=prompt, max_new_tokens=0),
        "beyond the context": Request(prompt=prompt, max_new_tokens=pair.context_length),
        "K = 0": Request(prompt=prompt, max_new_tokens=4, draft_tokens=0),
        "negative temperature": sampled(temperature=-1.0),
        "top_p = 0": sampled(top_p=0.0),
        "top_p above 1": sampled(top_p=1.5),
        "negative top_k": sampled(top_k=-1),
    }


@check(_NAME, "greedy", "validates")
def bad_input(subject: Subject, budget: Budget) -> Verdict:
    """Every senseless request raises ValueError, and the next good one is answered right.

    Kills alone: answers_nonsense, crashes_on_nonsense.
    """
    for what, request in senseless(subject.pair).items():
        try:
            completion = subject.decoder.generate([request])
        except ValueError:
            continue
        except Exception as error:  # a crash further down is no refusal
            problem, got = f"raised a {type(error).__name__}", str(error)
        else:
            problem, got = "answered", str(completion)
        return Verdict(
            check=_NAME,
            status=Status.FAIL,
            message=f"{what}: {problem} instead of refused with a ValueError",
            fault_class=FaultClass.CONTRACT,
            evidence={"got": got[:200]},
            repro=repro(subject, [request]),
        )
    good = Request(prompt=random_prompt(subject.pair, 4, budget.seed), max_new_tokens=8)
    verdict = greedy.judge(subject, _NAME, good, subject.ask_one(good))
    if not verdict.passed:
        return verdict
    return Verdict(
        check=_NAME,
        status=Status.PASS,
        message=f"{len(senseless(subject.pair))} senseless requests were refused",
        ruled_out="a senseless request that is answered, or that spoils the next one",
    )
