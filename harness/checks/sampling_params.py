"""Sampling parameters hold at every position of a block, as they do in plain decoding.

Penalties, bias, forbidden tokens and grammars depend on the tokens before: a verify step judges
K + 1 positions at once, each with a history of its own. Greedy output shows most of what can go
wrong there; ``sampling_laws`` is about the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import Budget
from harness.checks.minimise import may_be_blamed
from harness.checks.prompts import random_prompt, repetitive_prompt
from harness.checks.subject import Refused, Subject, check, only_without_speculation, repro
from harness.checks.toy_grammars import alphabet, alternating, ending
from harness.contract import Request, Sampling
from harness.models import ModelPair
from harness.verdict import FaultClass, Status, Verdict

PENALTIES = (
    Sampling(repetition_penalty=1.6),
    Sampling(repetition_penalty=0.6),
    Sampling(presence_penalty=2.0),
    Sampling(presence_penalty=-1.5),
    Sampling(frequency_penalty=1.5),
    Sampling(frequency_penalty=-1.0),
)
WANTED = 5.0  # bias of a token that is repeated until its penalty has used that up
SURE = 100.0  # bias of a token that comes as soon as it may
LARGEST = 4  # K
HISTORY = "penalties of a verified row do not look at just the tokens before it"


def widths(budget: Budget) -> Sequence[int]:
    """The smallest and the largest K of several tokens, as far as histories differ in kind."""
    several = [k for k in budget.draft_tokens if 1 < k <= LARGEST] or budget.draft_tokens
    return sorted({several[0], several[-1]})


def _length(k: int) -> int:
    """New tokens of a request: two blocks, and some rounds more if drafts are rejected."""
    return 2 * k + 6


def _judge_all(
    subject: Subject,
    name: str,
    requests: Sequence[Request],
    ruled_out: str,
    likely_fault: str,
    kind: FaultClass = FaultClass.PROCESSORS,
) -> Verdict:
    """Judge greedy requests; ``likely_fault``, of a kind, is what a FAIL may be put down to."""
    try:
        verdict = greedy.judge_all(subject, name, requests, ruled_out)
    except Refused as error:
        return only_without_speculation(subject, name, error, kind)
    return _blamed(subject, verdict, requests, likely_fault, kind)


def _blamed(
    subject: Subject,
    verdict: Verdict,
    requests: Sequence[Request],
    likely_fault: str,
    kind: FaultClass = FaultClass.PROCESSORS,
) -> Verdict:
    """A FAIL put down to the processors, if the same requests and others are right without any."""
    if not may_be_blamed(verdict):
        return verdict
    others = [
        msgspec.structs.replace(requests[-1], prompt=random_prompt(subject.pair, n, n))
        for n in range(2, 10)
    ]
    asked: list[Request] = []
    for request in [*requests, *others]:
        bare = msgspec.structs.replace(request, sampling=Sampling())
        if bare in asked or not subject.supports(bare):
            continue
        asked.append(bare)
        if greedy.problem_of(subject.pair, bare, subject.ask_one(bare))[0]:
            return verdict
    return msgspec.structs.replace(verdict, likely_fault=likely_fault, fault_class=kind)


@check("sampling_params.penalties", "greedy", "penalties")
def penalties(subject: Subject, budget: Budget) -> Verdict:
    """Each penalty, of both signs, on prompts that repeat and with a token that wants to.

    The token's bias is used up in the middle of a block: there a history that stands still, or
    that saw a token too often, shows.
    """
    requests = [
        request
        for k in widths(budget)
        for seed in range((budget.prompts + 1) // 2)
        for request in _penalised(subject.pair, budget, k, seed)
    ]
    return _judge_all(
        subject,
        "sampling_params.penalties",
        requests,
        "any token for which a penalty looks at anything but the prompt and the tokens before it, "
        f"K {widths(budget)[0]}..{widths(budget)[-1]}",
        HISTORY,
    )


def _penalised(pair: ModelPair, budget: Budget, k: int, seed: int) -> Iterator[Request]:
    prompt = repetitive_prompt(pair, 9 + seed, budget.seed + seed)
    token = (oracle.greedy_path(pair, prompt, 1)[0] + 1) % pair.vocab_size
    for penalty in PENALTIES:
        for bias in ({}, {token: WANTED}):
            yield Request(
                prompt=prompt,
                max_new_tokens=_length(k),
                draft_tokens=k,
                sampling=msgspec.structs.replace(penalty, logit_bias=bias),
            )


@check("sampling_params.opposite_penalties", "greedy", "penalties")
def opposite_penalties(subject: Subject, budget: Budget) -> Verdict:
    """A frequency penalty of 2 and one of -2 give different output where the target says so."""
    name = "sampling_params.opposite_penalties"
    pair, differing = subject.pair, 0
    for seed in range(budget.prompts):
        both = [
            Request(
                prompt=repetitive_prompt(pair, 10 + seed, budget.seed + seed),
                max_new_tokens=budget.new_tokens,
                draft_tokens=widths(budget)[-1],
                sampling=Sampling(frequency_penalty=penalty),
            )
            for penalty in (2.0, -2.0)
        ]
        answers = [subject.ask_one(request) for request in both]
        if answers[0].tokens != answers[1].tokens:
            differing += 1
            continue
        wrong = [
            greedy.problem_of(pair, request, answer)[0]
            for request, answer in zip(both, answers, strict=True)
        ]
        if any(wrong):
            verdict = Verdict(
                check=name,
                status=Status.FAIL,
                message=f"frequency penalties of 2 and -2 give the same {budget.new_tokens} tokens",
                evidence={"got": answers[0].tokens, "problems": wrong},
                repro=repro(subject, both),
            )
            return _blamed(subject, verdict, both, "penalties are not applied to verified rows")
    return Verdict(
        check=name,
        status=Status.PASS if differing else Status.INCONCLUSIVE,
        message=f"outputs under opposite penalties differ on {differing} of {budget.prompts} "
        "prompts, and elsewhere the target's are equal too",
        ruled_out="penalties without effect" if differing else "",
    )


@check("sampling_params.logit_bias", "greedy", "logit_bias")
def logit_bias(subject: Subject, budget: Budget) -> Verdict:
    """Tokens that plain decoding would emit are banned, and others boosted, at every offset."""
    pair, k = subject.pair, widths(budget)[-1]
    prompt = random_prompt(pair, 5, budget.seed)
    path = oracle.greedy_path(pair, prompt, k + 3)
    other = (path[0] + 1) % pair.vocab_size
    biases = [{token: -float("inf")} for token in dict.fromkeys(path)]
    biases += [{other: bias} for bias in (2.0, WANTED, SURE)]
    biases.append(dict.fromkeys(path, -SURE))
    requests = [
        Request(
            prompt=prompt,
            max_new_tokens=_length(k),
            draft_tokens=k,
            sampling=Sampling(logit_bias=bias),
        )
        for bias in biases
    ]
    return _judge_all(
        subject,
        "sampling_params.logit_bias",
        requests,
        f"any position of a block of {k} drafts where a banned or boosted token is neither",
        "logit_bias is not applied to every verified row",
    )


@check("sampling_params.min_new_tokens", "greedy", "min_new_tokens", "eos")
def min_new_tokens(subject: Subject, budget: Budget) -> Verdict:
    """EOS comes exactly when it may, at every offset of a block, if it would come at once."""
    pair, k = subject.pair, widths(budget)[-1]
    prompt = random_prompt(pair, 4, budget.seed)
    path = oracle.greedy_path(pair, prompt, 2 * k + 3)
    requests = [
        Request(
            prompt=prompt,
            max_new_tokens=_length(k),
            draft_tokens=k,
            eos=eos,
            sampling=Sampling(min_new_tokens=least, logit_bias=bias),
        )
        for least in range(1, k + 4)
        for eos, bias in (
            ((path[0],), {path[0]: SURE}),
            (tuple(sorted(set(path)))[: pair.vocab_size - 1], {}),
        )
    ]
    return _judge_all(
        subject,
        "sampling_params.min_new_tokens",
        requests,
        f"EOS forbidden for one token more or less than asked, at the first {k + 3} offsets",
        "min_new_tokens is counted wrongly in verified rows",
        FaultClass.END,
    )


@check("sampling_params.grammar", "greedy", "grammar")
def grammar(subject: Subject, budget: Budget) -> Verdict:
    """After a marker, even and odd tokens take turns; the marker comes at every offset."""
    requests = []
    for k in widths(budget):
        prompt = random_prompt(subject.pair, 6, budget.seed)
        path = oracle.greedy_path(subject.pair, prompt, k + 3)
        tokens = alphabet(subject.pair, path)
        requests += [
            Request(
                prompt=prompt,
                max_new_tokens=_length(k),
                draft_tokens=k,
                sampling=Sampling(grammar=alternating(tokens, marker)),
            )
            for marker in dict.fromkeys(path)
        ]
    return _judge_all(
        subject,
        "sampling_params.grammar",
        requests,
        "any token that the grammar forbids there, or allows and is passed over, "
        f"K {widths(budget)[0]}..{widths(budget)[-1]}",
        "the grammar is not advanced over the drafts of a block",
    )


@check("sampling_params.grammar_end", "greedy", "grammar", "eos")
def grammar_end(subject: Subject, budget: Budget) -> Verdict:
    """A grammar ends the output through EOS, at every offset of a block."""
    pair, k = subject.pair, widths(budget)[-1]
    prompt = random_prompt(pair, 7, budget.seed)
    path = oracle.greedy_path(pair, prompt, 2 * k)
    tokens, eos = alphabet(pair, path), path[0]
    requests = [
        Request(
            prompt=prompt,
            max_new_tokens=_length(k),
            draft_tokens=k,
            eos=(eos,),
            sampling=Sampling(grammar=ending(tokens, eos, after)),
        )
        for after in range(1, k + 4)
    ]
    return _judge_all(
        subject,
        "sampling_params.grammar_end",
        requests,
        f"a crash, a missed end or another token where a grammar ends at the first {k + 3} offsets",
        "what follows the grammar's end in a block is not left alone",
    )


@check("sampling_params.rows", "greedy", "penalties", "batch")
def rows(subject: Subject, budget: Budget) -> Verdict:
    """Each row of a batch has its own penalties and history, also where others draft nothing."""
    name, pair, k = "sampling_params.rows", subject.pair, widths(budget)[-1]
    batch = []
    for index in range(2 * len(PENALTIES)):
        make = repetitive_prompt if index % 2 else random_prompt
        batch.append(
            Request(
                prompt=make(pair, 6 + index, budget.seed + index),
                max_new_tokens=2 + index % 4 * k,
                draft_tokens=1 + index % k,
                speculate=index % 3 != 2 or "plain" not in subject.decoder.capabilities,
                sampling=PENALTIES[index // 2],
            )
        )
    for request, answer in zip(batch, subject.ask(batch), strict=True):
        verdict = greedy.judge(subject, name, request, answer)
        if verdict.status is Status.FAIL:
            verdict = msgspec.structs.replace(verdict, repro=repro(subject, batch))
            alone = greedy.judge(subject, name, request, subject.ask_one(request))
            likely = HISTORY if not alone.passed else "rows of a batch have each other's history"
            return _blamed(subject, verdict, batch, likely)
        if not verdict.passed:
            return verdict
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(batch)} rows with penalties of their own equal plain decoding",
        ruled_out="any differing token of a row, drafting or not, beside rows of other histories",
    )
