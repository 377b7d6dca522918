"""Prompts by task type, as token ids.

A pair with a tokenizer gets the texts of ``harness/prompts``, put through its chat template. A
pair without one (the tiny pairs) gets random ids, the same ones in every run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.models import ModelPair

PROMPTS = Path(__file__).resolve().parent.parent / "prompts"
TASKS = ("chat", "code", "math", "creative")
RANDOM_PROMPTS = 14  # per task, for pairs without a tokenizer
RANDOM_LENGTHS = (8, 32)


class WorkloadError(ValueError):
    """A workload that cannot be had; the message says what to do."""


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    content: str


class TextPrompt(msgspec.Struct, frozen=True):
    """One line of a task file."""

    id: str
    messages: list[Message]


@dataclass(frozen=True)
class Prompt:
    """What a decoder is given: the ids of one prompt of a task."""

    task: str
    prompt_id: str
    ids: tuple[int, ...]


def read_task(task: str) -> list[TextPrompt]:
    """Prompts of one task type, in the order of its file."""
    if task not in TASKS:
        raise WorkloadError(f"unknown task {task!r}: known are {', '.join(TASKS)}")
    lines = (PROMPTS / f"{task}.jsonl").read_bytes()
    return msgspec.json.Decoder(TextPrompt).decode_lines(lines)


def load_workload(
    pair: ModelPair, tasks: Sequence[str], per_task: int | None, max_new_tokens: int
) -> list[Prompt]:
    """Prompts of the given tasks for a pair.

    Parameters
    ----------
    pair : ModelPair
    tasks : sequence of str
    per_task : int or None
        The first so many of each task; None takes all.
    max_new_tokens : int
        Has to fit into the context behind every prompt.

    Raises
    ------
    WorkloadError
        In one line that says what is wrong and what to do.
    """
    prompts = [p for task in tasks for p in _task_prompts(pair, task)[:per_task]]
    for prompt in prompts:
        total = len(prompt.ids) + max_new_tokens
        if total > pair.context_length:
            raise WorkloadError(
                f"prompt {prompt.prompt_id} ({len(prompt.ids)} tokens) and {max_new_tokens} new "
                f"tokens exceed the context of {pair.context_length}: leave out the task "
                f"{prompt.task!r}, choose a smaller profile, or take a target with a longer context"
            )
    return prompts


def _task_prompts(pair: ModelPair, task: str) -> list[Prompt]:
    texts = read_task(task)
    if pair.tokenizer is None:
        return _random_prompts(task, pair.vocab_size)
    return [Prompt(task, text.id, _encode(pair, text)) for text in texts]


def _encode(pair: ModelPair, text: TextPrompt) -> tuple[int, ...]:
    """Ids of a conversation, ready for the target's turn."""
    messages = msgspec.to_builtins(text.messages)
    if getattr(pair.tokenizer, "chat_template", None):
        encoded = pair.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True
        )
    else:  # a base model: it continues the text
        encoded = pair.tokenizer("\n\n".join(message.content for message in text.messages))
    return tuple(encoded["input_ids"])


def _random_prompts(task: str, vocab_size: int) -> list[Prompt]:
    generator = random.Random(task)
    return [
        Prompt(
            task,
            f"{task}-{number:02}",
            tuple(generator.choices(range(vocab_size), k=generator.randint(*RANDOM_LENGTHS))),
        )
        for number in range(1, RANDOM_PROMPTS + 1)
    ]
