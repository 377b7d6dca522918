"""Decoders that want a verdict which they have not earned; docs/hostile.md is about them.

Importable as ``cheats:name`` where this directory is on the path, as under pytest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from decoders import ALL, Wrong, answered, asked

from harness.adapters.reference import EngineDecoder, engine
from harness.contract import Completion, Request, Round
from harness.models import ModelPair


def other(completion: Completion) -> Completion:
    """The last token is another one."""
    tokens = [*completion.tokens[:-1], completion.tokens[-1] ^ 1]
    return msgspec.structs.replace(completion, tokens=tokens)


def as_if(completion: Completion, k: int) -> Completion:
    """Rounds that accept all of K drafts, as far as there are tokens."""
    left, rounds = len(completion.tokens), []
    while left > 0:
        drafted = min(k, left - 1)
        rounds.append(Round(drafted, drafted))
        left -= drafted + 1
    return msgspec.structs.replace(completion, rounds=rounds, metrics=None)


class Remembers:
    """Speculation is what plain decoding said before, at no cost: keyed on the prompt."""

    capabilities = ALL - {"metrics", "model_draft"}

    def __init__(self, pair: ModelPair) -> None:
        self._right = engine(pair)
        self._said: dict[tuple[int, ...], Completion] = {}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        known = self._said.get(request.prompt)
        if request.speculate and known and len(known.tokens) == request.max_new_tokens:
            return as_if(known, request.draft_tokens)
        plain = msgspec.structs.replace(request, speculate=False)
        [answer] = self._right.generate([plain])
        if not request.speculate:
            self._said[request.prompt] = answer
            return answer
        return as_if(answer, request.draft_tokens)


def remembers(pair: ModelPair) -> Remembers:
    return Remembers(pair)


def in_disguise(pair: ModelPair) -> Wrong:
    """Plain decoding in both arms, and rounds as if all drafts had been accepted."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        plain = [msgspec.structs.replace(r, speculate=False) for r in requests]
        answers = right.generate(plain)
        return [as_if(a, r.draft_tokens) for a, r in zip(answers, requests, strict=True)]

    return Wrong(pair, generate)


def right_when_short(pair: ModelPair, most: int = 16) -> Wrong:
    """Plain decoding up to so many tokens; speculation gone wrong beyond."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        short = [r.max_new_tokens <= most for r in requests]
        changed = [
            msgspec.structs.replace(r, speculate=not s)
            for r, s in zip(requests, short, strict=True)
        ]
        answers = right.generate(changed)
        return [a if s else other(a) for a, s in zip(answers, short, strict=True)]

    return Wrong(pair, generate)


def sleeps(pair: ModelPair, seconds: float = 0.05) -> Wrong:
    """The plain arm sleeps, so that the other one looks fast."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        if not any(r.speculate for r in requests):
            time.sleep(seconds)
        return right.generate(requests)

    return Wrong(pair, generate, plain=True)


def flattering_logprobs(pair: ModelPair) -> Wrong:
    """The target's tokens, each with a log probability as if it were twice as likely."""

    def change(completion: Completion) -> Completion:
        values = completion.logprobs and [v / 2 for v in completion.logprobs]
        return msgspec.structs.replace(completion, logprobs=values)

    return Wrong(pair, answered(change))


def flattering_metrics(pair: ModelPair) -> Wrong:
    """Half of the target calls and seconds, and an acceptance rate to match; no rounds."""

    def change(completion: Completion) -> Completion:
        m = completion.metrics
        if m is None or m.target_calls is None or m.seconds is None:
            return completion
        calls, tokens = (m.target_calls + 1) // 2, len(completion.tokens)
        told = msgspec.structs.replace(
            m,
            target_calls=calls,
            accepted=tokens - calls,
            drafted=tokens - calls,
            acceptance_rate=1.0 if tokens > calls else 0.0,
            seconds=m.seconds / 2,
            tokens_per_second=2 * tokens / m.seconds,
            prompt_seconds=0.0,
            draft_seconds=0.0,
            verify_seconds=0.0,
        )
        return msgspec.structs.replace(completion, metrics=told, rounds=None)

    return Wrong(pair, answered(change))


def knows_the_prompts(pair: ModelPair, seed: int = 20261129) -> Wrong:
    """Right where a prompt is one of the suite's at its own seed, wrong where it is not."""
    from harness.checks.prompts import random_prompt

    lengths = range(1, 65)
    known = {random_prompt(pair, n, seed + k) for n in lengths for k in range(64)}

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        answers = right.generate(requests)
        return [
            a if r.prompt in known else other(a) for a, r in zip(answers, requests, strict=True)
        ]

    return Wrong(pair, generate)


def wrong_alike(pair: ModelPair) -> Wrong:
    """Both arms say the same, and it is not the target's."""
    return Wrong(pair, answered(other), plain=True)


def honest(pair: ModelPair) -> Wrong:
    return Wrong(pair, asked(), plain=True)
