"""Rows as a measurement makes them, and a decoder that answers what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.bench.measure import Settings, measure, schedule
from harness.bench.workload import Prompt
from harness.contract import CAPABILITIES, Completion, Request, Round
from harness.record import GenerationRow

SETTINGS = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64)
PROMPTS = [Prompt("chat", f"chat-{i}", (1, 2, 3)) for i in range(2)]


@dataclass
class Scripted:
    """A decoder that answers what it is told to, by arm."""

    plain: Any
    speculative: Any
    capabilities: frozenset[str] = frozenset(CAPABILITIES)
    seen: list[Request] = field(default_factory=list)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.seen += requests
        answer = self.speculative if requests[0].speculate else self.plain
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, list) else [answer]


def says(*tokens: int, reason: Any = "length", rounds: list[Round] | None = None) -> Completion:
    return Completion(tokens=list(tokens), finish_reason=reason, rounds=rounds)


def wrong_if_speculative(request: Request, completion: Completion) -> tuple[str, dict[str, Any]]:
    return ("here" if request.speculate and completion.tokens != [5, 6, 7, 8] else ""), {}


def rows_of(
    decoder: Any, settings: Settings = SETTINGS, judge: Any = wrong_if_speculative
) -> list[GenerationRow]:
    trials = schedule(["scripted"], PROMPTS, 1, 0)
    return list(measure({"scripted": decoder}, trials, settings, judge))


def row(
    decoder: str = "a",
    prompt: str = "p1",
    plain_seconds: float = 2.0,
    seconds: float = 1.0,
    tokens: Sequence[int] = (1, 2, 3, 4),
    plain_tokens: Sequence[int] = (1, 2, 3, 4),
    task: str = "chat",
    **rest: Any,
) -> GenerationRow:
    """A row of two arms; identical where the ids are, unless said otherwise."""
    rest.setdefault("identical", list(tokens) == list(plain_tokens))
    return GenerationRow(
        decoder=decoder,
        task=task,
        prompt_id=prompt,
        repeat=rest.pop("repeat", 0),
        prompt_tokens=3,
        plain_tokens=list(plain_tokens),
        plain_seconds=plain_seconds,
        tokens=list(tokens),
        seconds=seconds,
        first="plain",
        **rest,
    )
