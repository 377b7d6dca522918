"""Prompts by task type, as token ids.

A pair with a tokenizer gets the texts of ``harness/prompts``, or of a file of the user's, put
through its chat template. A pair without one (the tiny pairs) gets random ids, the same ones in
every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from jinja2 import TemplateError

from harness.bench import controls
from harness.bench.prompt_files import Message, TextPrompt, read_task, unknown
from harness.bench.tasks import CONTROLS, KNOWN, WorkloadError

if TYPE_CHECKING:
    from harness.models import ModelPair


@dataclass(frozen=True)
class Prompt:
    """What a decoder is given: the ids of one prompt of a task."""

    task: str
    prompt_id: str
    ids: tuple[int, ...]


def load_workload(
    pair: ModelPair,
    tasks: Sequence[str],
    per_task: int | None,
    max_new_tokens: int,
    own: Mapping[str, Sequence[TextPrompt]] | None = None,
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
    own : mapping of str to sequence of TextPrompt, optional
        Prompts by task, instead of the built-in ones.

    Raises
    ------
    WorkloadError
        In one line that says what is wrong and what to do.
    """
    if own and pair.tokenizer is None:
        raise WorkloadError(
            f"the pair {pair.name} has no tokenizer and cannot read prompts of a file: take "
            "another pair, or the built-in tasks"
        )
    prompts = [p for task in tasks for p in _task_prompts(pair, task, per_task, own)]
    for prompt in prompts:
        total = len(prompt.ids) + max_new_tokens
        if total > pair.context_length:
            raise WorkloadError(
                f"prompt {prompt.prompt_id} ({len(prompt.ids)} tokens) and {max_new_tokens} new "
                f"tokens exceed the context of {pair.context_length}: leave out the task "
                f"{prompt.task!r}, choose a smaller profile, or take a target with a longer context"
            )
    return prompts


def _task_prompts(
    pair: ModelPair,
    task: str,
    per_task: int | None,
    own: Mapping[str, Sequence[TextPrompt]] | None,
) -> list[Prompt]:
    known = own or KNOWN
    if task not in known:
        raise unknown(task, known)
    if own or (pair.tokenizer is not None and task not in CONTROLS):
        texts = (own[task] if own else read_task(task))[:per_task]
        return [Prompt(task, text.id, _encode(pair, text)) for text in texts]
    made = controls.prompts(task, pair)[:per_task]
    return [Prompt(task, f"{task}-{number:02}", ids) for number, ids in enumerate(made, 1)]


def _encode(pair: ModelPair, text: TextPrompt) -> tuple[int, ...]:
    """Ids of a conversation, ready for the target's turn."""
    if not getattr(pair.tokenizer, "chat_template", None):  # a base model: it continues the text
        encoded = pair.tokenizer("\n\n".join(message.content for message in text.messages))
        return tuple(encoded["input_ids"])
    for messages in (text.messages, _without_system(text.messages)):  # some know no system message
        try:
            return _through_template(pair, messages)
        except TemplateError as error:
            refusal = str(error)
    raise WorkloadError(
        f"prompt {text.id} does not fit the chat template of {pair.name}: leave it out ({refusal})"
    )


def _through_template(pair: ModelPair, messages: Sequence[Message]) -> tuple[int, ...]:
    encoded = pair.tokenizer.apply_chat_template(
        msgspec.to_builtins(messages), add_generation_prompt=True, return_dict=True
    )
    return tuple(encoded["input_ids"])


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The same, with what the system says put before the first words of the others."""
    said = [message.content for message in messages if message.role == "system"]
    first, *others = [message for message in messages if message.role != "system"]
    return [Message(first.role, "\n\n".join([*said, first.content])), *others]
