"""A stream gives what ``generate`` gives, in pieces, and may be closed at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness import oracle
from harness.checks import greedy
from harness.checks.budget import LARGE, Budget
from harness.checks.prompts import random_prompt
from harness.checks.reproduce import Call, program
from harness.checks.subject import NOTHING_TO_ASK, Subject, check
from harness.contract import Completion, Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict
from reference_impl.autoregressive import finished

HOT = Sampling(temperature=3.0)  # so that every id is likely enough to come
TOGETHER = 6  # texts that are decoded by one call, to compare their streams with
TEXT = 96  # tokens of each
LEFT_BEHIND = "a closed stream leaves its state behind"
TOKENS_AN_ID = 20  # of all texts: each id of V is then missed with probability e^-20, if even


@check("streaming.pieces", "stream")
def pieces(subject: Subject, budget: Budget) -> Verdict:
    """The pieces of a stream add up to what ``generate`` answers.

    Outputs of 1 to 4 tokens and long ones; ended by length, EOS or stop sequence, at the border
    of a block and in its midst; greedy, and sampled with a seed.
    """
    name, most = "streaming.pieces", 0
    requests = [request for request in _spread(subject, budget) if subject.supports(request)]
    if not requests:
        raise Unsupported(NOTHING_TO_ASK)
    for request, completion in zip(requests, subject.ask(requests), strict=True):
        found = subject.stream(request)
        if wrong := _differs(subject, name, request, found, completion):
            return wrong
        most = max(most, *map(len, found))
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{len(requests)} streams add up to the answer",
        ruled_out="tokens that a stream loses, repeats, or goes on with, at the end of an output "
        "or between two pieces",
        evidence={"requests": len(requests), "longest_piece": most},
    )


@check("streaming.every_id", "stream")
def every_id(subject: Subject, budget: Budget) -> Verdict:
    """No token id is a special one to the stream: each has come in the midst of a piece.

    Texts are streamed until every id has; or until a right decoder should have shown them all,
    where what is missing is told.
    """
    name, pair = "streaming.every_id", subject.pair
    large = pair.target.num_parameters() > LARGE
    tokens, most = 0, budget.large_tokens if large else TOKENS_AN_ID * pair.vocab_size
    inside: set[int] = set()
    for batch in _texts(subject, budget):
        repeats = batch[0].sampling.greedy or batch[0].seed is not None
        answers: Sequence[Completion | None] = [None] * len(batch)
        if repeats:
            answers = subject.ask(batch)
        for request, answer in zip(batch, answers, strict=True):
            found = subject.stream(request)
            if wrong := _differs(subject, name, request, found, answer):
                return wrong
            tokens += sum(map(len, found))
            inside.update(token for piece in found for token in piece[1:])
            if len(inside) == pair.vocab_size or tokens >= most:
                if not inside:
                    raise Unsupported("its pieces have one id each: none has a midst")
                return Verdict(
                    check=name,
                    status=Status.PASS,
                    message=f"{len(inside)} of {pair.vocab_size} ids came in the midst of a piece, "
                    "and were lost or changed nowhere",
                    ruled_out=f"an id that a stream cannot carry, of the {len(inside)} that came",
                    evidence={"tokens": tokens, "ids": len(inside)},
                )
    raise Unsupported(NOTHING_TO_ASK)


@check("streaming.cancel", "stream")
def cancel(subject: Subject, budget: Budget) -> Verdict:
    """After a stream was closed early, the next request is answered as before, and streamed so."""
    name, pair = "streaming.cancel", subject.pair
    sampling, seed = _repeatable(subject)
    if sampling is None:
        raise Unsupported(NOTHING_TO_ASK)
    closed = 0
    for k in sorted({min(budget.draft_tokens), max(budget.draft_tokens)}):
        long, *others = [
            Request(
                prompt=random_prompt(pair, length, budget.seed + k),
                max_new_tokens=budget.new_tokens,
                draft_tokens=k,
                sampling=sampling,
                seed=seed,
            )
            for length in (12, 5, 12, 20)
        ]
        before = [subject.ask_one(request) for request in others]
        for after, request, answer in zip((1, 1, 2), others, before, strict=True):
            subject.stream(long, after)
            again, streamed = subject.ask_one(request), subject.stream(request)
            closed += 1
            for tokens in (again.tokens, [token for piece in streamed for token in piece]):
                if tokens != answer.tokens and not _near_tie(subject, request, tokens):
                    return Verdict(
                        check=name,
                        status=Status.FAIL,
                        message=f"after a stream was closed at its piece {after}, the next request "
                        f"is answered by {tokens}, before by {answer.tokens}",
                        likely_fault=LEFT_BEHIND,
                        fault_class=FaultClass.STREAM,
                        evidence={"got": tokens, "expected": answer.tokens},
                        repro=program(subject, [Call((long,), after), Call((request,))]),
                    )
    return Verdict(
        check=name,
        status=Status.PASS,
        message=f"{closed} streams were closed early, and the next requests are answered as before",
        ruled_out="a state that a cancelled request leaves behind",
    )


def _spread(subject: Subject, budget: Budget) -> Iterator[Request]:
    pair = subject.pair
    for k in budget.draft_tokens:
        longest = max(budget.new_tokens, 2 * k + 6)
        prompt = random_prompt(pair, 5, budget.seed + k)
        request = Request(prompt=prompt, max_new_tokens=longest, draft_tokens=k)
        path = oracle.greedy_path(pair, prompt, 2 * k + 4)
        changes: list[dict[str, Any]] = [{"max_new_tokens": n} for n in (1, 2, 3, 4, longest)]
        for offset in sorted({0, 1, k // 2 + 1, k, k + 1, 2 * k}):
            changes += [{"eos": (path[offset],)}, {"stop": (tuple(path[offset : offset + 2]),)}]
        warm = {"sampling": Sampling(temperature=1.0), "seed": k}
        for change in changes + [warm | change for change in changes[:7]]:
            yield msgspec.structs.replace(request, **change)


def _texts(subject: Subject, budget: Budget) -> Iterator[list[Request]]:
    """Long texts without end, ``TOGETHER`` at a time."""
    pair, declared = subject.pair, subject.decoder.capabilities
    if not {"sampling", "greedy"} & declared:
        return
    sampling = HOT if "sampling" in declared else Sampling()
    k = max(k for k in budget.draft_tokens if k <= 4 or k == min(budget.draft_tokens))
    for first in range(0, 10**6, TOGETHER):
        yield [
            Request(
                prompt=random_prompt(pair, 4, budget.seed + n),
                max_new_tokens=min(TEXT, pair.context_length - 4),
                draft_tokens=k,
                sampling=sampling,
                seed=n if sampling is HOT and "seed" in declared else None,
            )
            for n in range(first, first + TOGETHER)
        ]


def _repeatable(subject: Subject) -> tuple[Sampling | None, int | None]:
    """Sampling and seed of requests whose answer is the same every time, None if there are none."""
    declared = subject.decoder.capabilities
    if "greedy" in declared:
        return Sampling(), None
    return (Sampling(temperature=1.0), 1) if {"sampling", "seed"} <= declared else (None, None)


def _differs(
    subject: Subject,
    name: str,
    request: Request,
    found: Sequence[Sequence[int]],
    answer: Completion | None,
) -> Verdict | None:
    """FAIL where a stream is not the answer, or not as long as asked for where that is unknown."""
    tokens = [token for piece in found for token in piece]
    if answer is None:
        if len(tokens) == request.max_new_tokens:
            return None
        message = f"the stream gives {len(tokens)} tokens of {request.max_new_tokens} asked for"
    else:
        # What is sampled in company may differ from what is sampled alone, by noise.
        if tokens == answer.tokens or tokens == subject.ask_one(request).tokens:
            return None
        message = f"the stream gives {tokens}, generate answers {answer.tokens}"
    if answer is not None and request.sampling.greedy:
        verdict = greedy.judge(subject, name, request, answer)
        if not verdict.passed:  # the stream may be right
            return verdict
        if _near_tie(subject, request, tokens):
            return None
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=message,
        likely_fault=_loss(tokens, answer),
        fault_class=FaultClass.STREAM,
        evidence={"pieces": [list(piece) for piece in found]},
        repro=program(subject, [Call((request,), len(found) + 1)]),
    )


def _near_tie(subject: Subject, request: Request, tokens: list[int]) -> bool:
    """Whether greedy tokens are plain decoding's, but for near-ties."""
    if not (request.sampling.greedy and tokens):
        return False
    reason = finished(tokens, request)
    completion = Completion(tokens=tokens, finish_reason=reason or "length")
    return greedy.judge(subject, "", request, completion).passed


def _loss(tokens: Sequence[int], answer: Completion | None) -> str:
    """How a stream's tokens came about, if that is plain to see."""
    if answer is None:
        return ""
    expected = answer.tokens
    if tokens == expected[: len(tokens)]:
        return "what the stream holds back is never sent"
    if expected == tokens[: len(expected)]:
        return "the stream goes on behind the end"
    left = iter(expected)
    if all(token in left for token in tokens):
        return "tokens are lost between two pieces, or within one"
    left = iter(tokens)
    if all(token in left for token in expected):
        return "tokens are sent twice"
    return ""
