"""Workloads that are made, not written: text that repeats itself, and ids that mean nothing.

Between the two lies what a drafter can gain or lose: whoever copies, or counts on, is always right
about the first; about the second nobody knows anything. Neither goes through a chat template, the
target continues it as it stands. What follows random ids is the target's own text, which may fall
into a loop: the report's column ``repeats`` tells.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.models import ModelPair

COUNT = 24  # prompts of a task
COUNT_WITHOUT_TEXT = 14  # of a pair without a tokenizer: the suites decode all tasks as one batch
LENGTHS = (8, 32)  # of random prompts, in tokens
PERIOD = 4  # after so many random ids they begin again

PHRASES = (
    "The red bus stops at the old gate.",
    "Row the boat gently down to the mill.",
    "Nine green bottles stand on the wall.",
    "Turn left, turn right, and turn left again.",
    "We wait for the rain, and the rain waits for us.",
    "Tick, tock, says the clock in the hall.",
    "Open the door, close the door, and open it again.",
    "All work and no play makes a long day.",
)
CYCLES = (  # one item a line, and then from the beginning
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ("north", "east", "south", "west"),
    ("| row | value |", "| --- | --- |", "| a | 0 |", "| b | 1 |"),
    ("spring", "summer", "autumn", "winter"),
    ("for item in items:", "    print(item)"),
    ("- bread", "- butter", "- milk", "- apples", "- tea"),
    ("red", "yellow", "green"),
    ("GET /index 200", "GET /style.css 200", "GET /logo.png 200"),
)
COUNTS = (  # first number, step, and what stands before it
    (1, 1, ""),
    (2, 2, ""),
    (1, 1, "Step "),
    (10, 10, ""),
    (100, 1, ""),
    (5, 5, "Page "),
    (1, 1, "chapter_"),
    (1000, 1000, ""),
)


def repetitive_texts() -> list[str]:
    """Texts whose next tokens are plain to see: phrases, lists and counts in turn."""
    texts = []
    for number, (phrase, items, (first, step, lead)) in enumerate(
        zip(PHRASES, CYCLES, COUNTS, strict=True)
    ):
        times = 8 + 2 * number  # of different lengths
        texts.append(" ".join([phrase] * times))
        texts.append("\n".join(islice(cycle(items), 3 * times)))
        texts.append(", ".join(f"{lead}{first + step * n}" for n in range(times)))
    return texts


def prompts(task: str, pair: ModelPair) -> list[tuple[int, ...]]:
    """Prompts of a control task; of any task, for a pair without a tokenizer.

    Without text all prompts are random ids, and those of the repetitive task begin again soon.
    """
    if pair.tokenizer is None:
        found = _random(task, range(pair.vocab_size), COUNT_WITHOUT_TEXT)
        if task == "repetitive":
            return [tuple(islice(cycle(ids[:PERIOD]), len(ids))) for ids in found]
        return found
    if task == "repetitive":
        return [tuple(pair.tokenizer(text)["input_ids"]) for text in repetitive_texts()]
    special = {*pair.eos, *pair.tokenizer.all_special_ids}  # they are the template's, or an end
    return _random(task, [i for i in range(pair.vocab_size) if i not in special], COUNT)


def _random(task: str, ids: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Drawn from ``ids``: the same prompts in every run, others for another task."""
    generator = random.Random(task)
    return [tuple(generator.choices(ids, k=generator.randint(*LENGTHS))) for _ in range(count)]
