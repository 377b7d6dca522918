"""The form of an answer, whatever it says: completions as the contract has them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.smoke import wrong_counts
from harness.checks.subject import NOTHING_TO_ASK, Refused, Subject, check, repro
from harness.contract import Completion, Grammar, Request, Sampling
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Unsupported, Verdict


@check("contract.form")
def form(subject: Subject, budget: Budget) -> Verdict:
    """One well-formed completion for every request of a batch, in their order.

    Over sampling parameters, ends, K, lengths, log probabilities, with speculation and without.
    Where nothing but its length ends an output, the lengths show another order.
    """
    name, asked = "contract.form", 0
    batches = [_varied(subject, budget, end) for end in _ends(subject.pair)]
    for batch in filter(None, batches):
        for request, completion in zip(batch, subject.ask(batch), strict=True):
            if problem := _wrong_rounds(subject, request, completion):
                return Verdict(
                    check=name,
                    status=Status.ERROR,
                    message=f"malformed output: {problem}",
                    fault_class=FaultClass.CONTRACT,
                    repro=repro(subject, [request]),
                )
        asked += len(batch)
    if not asked:
        raise Unsupported(NOTHING_TO_ASK)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{asked} answers are in the contract's form, and in the order of their requests",
        ruled_out="answers that are missing, empty, out of order, out of the vocabulary, or with "
        "log probabilities or rounds that cannot be",
        evidence={"requests": asked},
    )


def _wrong_rounds(subject: Subject, request: Request, completion: Completion) -> str:
    if not request.speculate:
        return ""
    if completion.rounds is None and "rounds" in subject.decoder.capabilities:
        return "rounds are declared, and none is reported"
    return wrong_counts(completion)


@check("contract.requests")
def requests(subject: Subject, budget: Budget) -> Verdict:
    """A decoder leaves the requests as they are: what it is asked next must not depend on it."""
    name = "contract.requests"
    batch = _varied(subject, budget, {})
    before = [msgspec.json.encode(request) for request in batch]
    if not batch:
        raise Unsupported(NOTHING_TO_ASK)
    subject.ask(batch)
    for request, was in zip(batch, before, strict=True):
        if (now := msgspec.json.encode(request)) != was:
            return Verdict(
                check=name,
                status=Status.FAIL,
                message="the decoder changes the request that it is given",
                likely_fault="a mapping of the request is written to instead of a copy",
                fault_class=FaultClass.CONTRACT,
                evidence={"before": was.decode(), "after": now.decode()},
            )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(batch)} requests are as they were",
        ruled_out="a request that is changed by being answered",
    )


@check("contract.nothing")
def nothing(subject: Subject, budget: Budget) -> Verdict:
    """No requests are answered by no completions.

    Kills alone: needs_a_request.
    """
    name = "contract.nothing"
    try:
        subject.ask([])
    except Refused as error:
        return Verdict(
            check=name,
            status=Status.FAIL,
            message=f"an empty list of requests must give an empty list: {error}",
            fault_class=FaultClass.CONTRACT,
        )
    return Verdict(
        check=name,
        status=Status.PASS,
        message="an empty list of requests gives an empty list",
        ruled_out="a crash where there is nothing to do",
    )


def _varied(subject: Subject, budget: Budget, end: dict[str, Any]) -> list[Request]:
    """A batch of requests of every kind that the decoder takes, out of step with each other."""
    pair, rng = subject.pair, random.Random(budget.seed)
    requests = [
        Request(
            prompt=random_prompt(pair, rng.choice([1, 5, 20]), budget.seed + n),
            max_new_tokens=rng.randint(1, budget.new_tokens),
            sampling=Sampling(**parameters),
            draft_tokens=rng.choice(budget.draft_tokens),
            logprobs="logprobs" in subject.decoder.capabilities and n % 2 == 0,
            speculate="plain" not in subject.decoder.capabilities or n % 5 != 4,
            **end,
        )
        for n, parameters in enumerate(_parameters(pair))
    ]
    return [request for request in requests if subject.supports(request)]


def _parameters(pair: ModelPair) -> list[dict[str, Any]]:
    """Sampling parameters, each kind for itself."""
    ids = range(min(64, pair.vocab_size))
    kinds: list[dict[str, Any]] = [
        {},
        {"logit_bias": dict.fromkeys(ids[::3], 1.0)},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
        {"grammar": Grammar((dict.fromkeys(ids, 0),))},
        {"min_new_tokens": 2},
    ]
    filters: list[dict[str, Any]] = [{"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1}]
    greedy = 3 * kinds[:1] + kinds  # a decoder may take no other
    return greedy + [{"temperature": 0.8} | more for more in greedy + filters]


def _ends(pair: ModelPair) -> list[dict[str, Any]]:
    """What ends the outputs of a batch: length alone, an EOS, a stop sequence."""
    some = tuple(range(0, pair.vocab_size, max(1, pair.vocab_size // 4)))
    return [{}, {"eos": some}, {"stop": tuple((token,) for token in some)}]
