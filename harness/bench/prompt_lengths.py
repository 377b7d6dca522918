"""Prompts of one length, made of a task's own texts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench.tasks import WorkloadError
from harness.bench.workload import Prompt


def of_length(
    prompts: Sequence[Prompt], tokens: int, max_new_tokens: int, context: int
) -> list[Prompt]:
    """Every prompt with exactly so many tokens: its own last ones, behind those of its task.

    A prompt that is too long loses its beginning. In front of one that is too short stand the
    prompts of its task that come before it, in a ring, and the first of them is cut. So all end as
    they did, with the target's turn.

    Raises
    ------
    WorkloadError
        If they and ``max_new_tokens`` do not fit into the context.
    """
    if tokens + max_new_tokens > context:
        raise WorkloadError(
            f"prompts of {tokens} tokens and {max_new_tokens} new ones exceed the context of "
            f"{context}: take fewer of either"
        )
    made = []
    for prompt in prompts:
        task = [other.ids for other in prompts if other.task == prompt.task]
        place = task.index(prompt.ids)
        ids = prompt.ids
        while len(ids) < tokens:
            place -= 1
            ids = task[place % len(task)] + ids
        made.append(Prompt(prompt.task, prompt.prompt_id, ids[-tokens:]))
    return made
