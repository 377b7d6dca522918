"""A row of a batch gets what it gets alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from harness import oracle
from harness.checks import greedy, randomness
from harness.checks.budget import Budget
from harness.checks.prompts import lengths, random_prompt, repetitive_prompt
from harness.checks.reproduce import Call, program
from harness.checks.subject import Refused, Subject, check
from harness.contract import Completion, Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict

COPIES = 8  # of every row, in the large batch
TRIES = 4  # sets of seeds, of which two must differ in company: rounding may once
MIXED_UP = "rows of a batch are mixed up"
REFUSED = "{} (in a batch of {}; alone each of its requests is answered)"


@check("batching.rows", "greedy", "batch")
def rows(subject: Subject, budget: Budget) -> Verdict:
    """Greedy rows equal plain decoding in any company.

    Rows that differ in prompt, length, K and whether they are drafted, so that they fall out of
    step: in their order and reversed, each beside a sampled row, many copies of all of them
    shuffled, rows that differ in the ids of their prompts alone, texts of one token beside a row
    that is not drafted, and a batch of one.
    """
    requests = list(_ragged(subject, budget))
    batches = [requests, requests[::-1]]
    if "sampling" in subject.decoder.capabilities:
        beside = [
            msgspec.structs.replace(r, sampling=Sampling(temperature=0.8 + 0.1 * i))
            for i, r in enumerate(requests)
        ]
        batches.append([row for both in zip(beside, requests, strict=True) for row in both])
    many = COPIES * requests
    random.Random(budget.seed).shuffle(many)
    return _judge(
        subject,
        "batching.rows",
        [
            *batches,
            many,
            list(_alike(subject, budget)),
            *_beginnings(subject, budget),
            requests[:1],
        ],
        "any differing token of a greedy row in ragged, permuted and mixed batches, among rows of "
        "one shape, in one of "
        f"{len(many)} rows and in one of a single row",
    )


@check("batching.ends", "greedy", "batch")
def ends(subject: Subject, budget: Budget) -> Verdict:
    """Rows that end in different rounds, at EOS, stop sequence or length, end as they do alone.

    Some of them go on when most have ended, the first rows in one batch and the last in the other.
    """
    pair, n = subject.pair, budget.new_tokens
    requests = []
    for seed in range(4):
        prompt = random_prompt(pair, 3 + 2 * seed, budget.seed + seed)
        path = oracle.greedy_path(pair, prompt, n)
        whole = Request(prompt=prompt, max_new_tokens=n, draft_tokens=max(budget.draft_tokens))
        for offset in (seed, n // 4 + seed, n // 2 + seed):
            ending = [
                msgspec.structs.replace(whole, eos=(path[offset],)),
                msgspec.structs.replace(whole, stop=(tuple(path[offset : offset + 2]),)),
                msgspec.structs.replace(whole, max_new_tokens=offset + 1),
            ]
            requests += [request for request in ending if subject.supports(request)]
        requests.append(whole)
    return _judge(
        subject,
        "batching.ends",
        [requests, requests[::-1]],
        "a row that goes on after its end, ends with another one, or is spoilt when others end",
    )


@check("batching.sampled", "sampling", "seed", "batch")
def sampled(subject: Subject, budget: Budget) -> Verdict:
    """Seeded rows give the same ids alone, in a batch, permuted, and beside other kinds of rows."""
    name = "batching.sampled"
    if not randomness.reproducible(subject.pair):
        raise Unsupported(
            f"rounding alone may give other ids in a batch than alone on {subject.pair.name}: "
            "use a pair with a small vocabulary"
        )
    wrong = None
    for attempt in range(TRIES):
        requests = list(_seeded(subject, budget, attempt))
        found = _differs_in_company(subject, name, requests)
        if found and wrong:
            return found
        wrong = found or wrong
        if not wrong:
            break
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(requests)} seeded rows give the same ids alone and in company",
        ruled_out="any differing token of a seeded row in ragged, permuted and mixed batches",
    )


def _ragged(subject: Subject, budget: Budget) -> Iterator[Request]:
    """Greedy requests unlike each other in prompt, length, K and whether they are drafted."""
    pair, rng = subject.pair, random.Random(budget.seed)
    k, plain = max(budget.draft_tokens), "plain" in subject.decoder.capabilities
    for index in range(4 * budget.prompts + 4):
        make = repetitive_prompt if index % 3 == 2 else random_prompt
        length = rng.choice(lengths(pair, k, min(40, pair.context_length - budget.new_tokens)))
        yield Request(
            prompt=make(pair, length, budget.seed + index),
            max_new_tokens=rng.randint(1, budget.new_tokens),
            draft_tokens=rng.choice(budget.draft_tokens),
            speculate=not plain or index % 5 != 4,
        )


def _beginnings(subject: Subject, budget: Budget) -> Iterator[list[Request]]:
    """Batches in which all rows that are drafted begin with one token, and another one is long.

    Of one token no state of the target is known before the first round.
    """
    n, k = budget.new_tokens, max(budget.draft_tokens)
    short, long = (
        Request(
            prompt=random_prompt(subject.pair, length, budget.seed + length),
            max_new_tokens=n,
            draft_tokens=k,
        )
        for length in (1, 6)
    )
    yield [short, short, msgspec.structs.replace(long, max_new_tokens=1)]
    if "plain" in subject.decoder.capabilities:
        yield [short, msgspec.structs.replace(long, speculate=False)]


def _alike(subject: Subject, budget: Budget) -> Iterator[Request]:
    """Rows that one call can hold of decoders that take no ragged batches."""
    for index in range(COPIES):
        yield Request(
            prompt=random_prompt(subject.pair, 5, budget.seed + 100 + index),
            max_new_tokens=budget.new_tokens,
            draft_tokens=max(budget.draft_tokens),
        )


def _seeded(subject: Subject, budget: Budget, attempt: int) -> Iterator[Request]:
    """The same, sampled under settings and seeds of their own."""
    filtered = Sampling(temperature=0.9, top_k=5, top_p=0.9)
    for i, request in enumerate(_ragged(subject, budget)):
        sampling = Sampling(temperature=0.7 + 0.1 * i) if i % 2 else filtered
        seed = budget.seed + 100 * attempt + i
        row = msgspec.structs.replace(request, sampling=sampling, seed=seed)
        if not subject.supports(row):
            row = msgspec.structs.replace(row, sampling=Sampling(temperature=0.7 + 0.1 * i))
        yield row


def _judge(
    subject: Subject, name: str, batches: Sequence[Sequence[Request]], ruled_out: str
) -> Verdict:
    """Judge the greedy rows of batches; the first that is wrong decides."""
    calls: list[Call] = []
    for batch in batches:
        calls.append(Call(tuple(batch)))
        answers = _ask(subject, name, batch)
        if isinstance(answers, Verdict):
            return answers
        for request, completion in zip(batch, answers, strict=True):
            if not request.sampling.greedy:
                continue
            verdict = greedy.judge(subject, name, request, completion)
            if not verdict.passed:
                return _blamed(subject, request, greedy.in_short(subject, calls, verdict))
    greedily = sum(request.sampling.greedy for batch in batches for request in batch)
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{greedily} rows equal plain decoding in {len(batches)} batches",
        ruled_out=ruled_out,
    )


def _blamed(subject: Subject, request: Request, verdict: Verdict) -> Verdict:
    """The FAIL put down to the batch, where the request is right alone: not all faults repeat."""
    told = (FaultClass.BATCH, FaultClass.CACHE)
    if verdict.status is not Status.FAIL or verdict.fault_class in told:
        return verdict
    if not greedy.judge(subject, verdict.check, request, subject.ask_one(request)).passed:
        return verdict
    return msgspec.structs.replace(verdict, likely_fault=MIXED_UP, fault_class=FaultClass.BATCH)


def _ask(subject: Subject, name: str, batch: Sequence[Request]) -> list[Completion] | Verdict:
    """The answers, or FAIL where a batch is refused and none of its requests is."""
    try:
        return subject.ask(batch)
    except Refused as refused:
        for request in batch:
            subject.ask_one(request)
        return Verdict(
            check=name,
            status=Status.FAIL,
            message=REFUSED.format(refused, len(batch)),
            likely_fault=MIXED_UP,
            fault_class=FaultClass.BATCH,
            repro=program(subject, [Call(tuple(batch))]),
        )


def _differs_in_company(subject: Subject, name: str, requests: Sequence[Request]) -> Verdict | None:
    """FAIL for a seeded request that gives other ids in a batch than alone."""
    alone = [subject.ask_one(request).tokens for request in requests]
    batches = [list(requests), list(requests[::-1])]
    strangers = [msgspec.structs.replace(r, seed=None) for r in requests]
    if "greedy" in subject.decoder.capabilities:
        strangers[::2] = [
            msgspec.structs.replace(r, sampling=Sampling(), seed=None) for r in requests[::2]
        ]
    batches.append([row for both in zip(strangers, requests, strict=True) for row in both])
    expected = {request.seed: tokens for request, tokens in zip(requests, alone, strict=True)}
    for batch in batches:
        answers = _ask(subject, name, batch)
        if isinstance(answers, Verdict):
            return answers
        for request, completion in zip(batch, answers, strict=True):
            if request.seed is None or completion.tokens == expected[request.seed]:
                continue
            fault, kind = randomness.fault_of_company(subject, request, expected[request.seed])
            return Verdict(
                check=name,
                status=Status.FAIL,
                message=f"a seed gives other ids in a batch of {len(batch)} than alone",
                likely_fault=fault,
                fault_class=kind,
                evidence={"alone": expected[request.seed], "in_company": completion.tokens},
                repro=program(subject, [Call((request,)), Call(tuple(batch))]),
            )
    return None
