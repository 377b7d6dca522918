"""Files of prompts, one JSON object a line, in either of two public formats.

Spec-Bench's ``question.jsonl``: ``{"question_id": 81, "category": "writing", "turns": ["...",
"..."]}``. The category is the task. Only the first turn is taken: the later ones follow the model's
own answers, which no file has.

Plain: ``{"prompt": "..."}``, which is one message of the user, or ``{"messages": [{"role": "user",
"content": "..."}]}``; with ``"task"`` and ``"id"`` where wanted. Without, the task is the file's
name, less the suffix, and prompts are numbered. ``harness/prompts`` holds files of this format.

The fields of the first line tell which of the two a file is. Fields that have no name here are
ignored, and so are empty lines.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from harness.bench.tasks import ALL_TASKS, WRITTEN, WorkloadError

PROMPTS = Path(__file__).resolve().parent.parent / "prompts"


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        if not self.content.strip():
            raise ValueError("a message without content")


class SpecBenchLine(msgspec.Struct, frozen=True, rename={"id": "question_id", "task": "category"}):
    """One line of a ``question.jsonl``."""

    id: int | str
    task: str
    turns: list[str]

    @property
    def conversation(self) -> list[Message]:
        """What the target answers to: the first turn."""
        if not self.turns:
            raise ValueError("`turns` is empty")
        return [Message("user", self.turns[0])]


class PlainLine(msgspec.Struct, frozen=True):
    """One line with a prompt, or with messages."""

    prompt: str | None = None
    messages: list[Message] | None = None
    task: str | None = None
    id: int | str | None = None

    @property
    def conversation(self) -> list[Message]:
        """What the target answers to."""
        if self.prompt is not None and self.messages is None:
            return [Message("user", self.prompt)]
        if self.messages is None or self.prompt is not None:
            raise ValueError("either `prompt` or `messages` is needed")
        if not self.messages or self.messages[-1].role != "user":
            raise ValueError("the last of `messages` has to be the user's")
        return self.messages


Line = SpecBenchLine | PlainLine
FORMS: dict[type[Line], str] = {
    SpecBenchLine: '{"question_id": 81, "category": "writing", "turns": ["..."]}',
    PlainLine: '{"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}',
}
ANY_FORM = " or ".join(FORMS.values())


@dataclass(frozen=True)
class TextPrompt:
    """A conversation that is the target's turn to go on with."""

    task: str
    id: str
    messages: Sequence[Message]


@dataclass(frozen=True)
class PromptFile:
    """What a file holds, and which file it was."""

    path: Path
    sha256: str
    prompts: list[TextPrompt]


def read_task(task: str) -> list[TextPrompt]:
    """Prompts of a built-in task, in the order of its file.

    Raises
    ------
    WorkloadError
        If it has no file.
    """
    if task not in WRITTEN:
        raise unknown(task, WRITTEN)
    return read_files([PROMPTS / f"{task}.jsonl"])[0].prompts


def read_files(paths: Iterable[Path]) -> list[PromptFile]:
    """Prompts of files of either format, in the order of their lines.

    Raises
    ------
    WorkloadError
        In one line that names file and line, and what a line has to be.
    """
    files: list[PromptFile] = []
    for path in dict.fromkeys(paths):
        known = [prompt for file in files for prompt in file.prompts]
        files.append(_read(path, known))
    return files


def by_task(files: Sequence[PromptFile], tasks: Sequence[str] = ()) -> dict[str, list[TextPrompt]]:
    """The prompts of these tasks, or of all where none is named.

    Raises
    ------
    WorkloadError
        If no file has one of the tasks.
    """
    found: dict[str, list[TextPrompt]] = {}
    for file in files:
        for prompt in file.prompts:
            found.setdefault(prompt.task, []).append(prompt)
    for task in tasks:
        if task not in found:
            raise unknown(task, found)
    return {task: found[task] for task in tasks or found}


def unknown(task: str, known: Iterable[str]) -> WorkloadError:
    """The error that names what is known."""
    return WorkloadError(f"unknown task {task!r}: known are {', '.join(known)}")


def _read(path: Path, known: Sequence[TextPrompt]) -> PromptFile:
    """One file, after those that gave the prompts ``known``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from None
    lines = list(_lines(content))
    if not lines:
        raise WorkloadError(f"{path} holds no prompts: a line of it has to be {ANY_FORM}")
    form: type[Line] | None = None
    counts = Counter(prompt.task for prompt in known)
    seen = {(prompt.task, prompt.id) for prompt in known}
    prompts = []
    for number, line in lines:
        try:
            form = form or _form(line)
            prompt = _prompt(msgspec.json.decode(line, type=form), path.stem, counts)
            if (prompt.task, prompt.id) in seen:
                raise ValueError(f"a second prompt {prompt.id!r} of the task {prompt.task!r}")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            needed = FORMS[form] if form else ANY_FORM
            raise WorkloadError(
                f"{path}, line {number}: {error}: a line has to be {needed}"
            ) from None
        counts[prompt.task] += 1
        seen.add((prompt.task, prompt.id))
        prompts.append(prompt)
    return PromptFile(path, hashlib.sha256(content).hexdigest(), prompts)


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines that hold something, with their numbers; Windows may have put a mark before them."""
    lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _form(line: bytes) -> type[Line]:
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    if "turns" in fields:
        return SpecBenchLine
    if "prompt" in fields or "messages" in fields:
        return PlainLine
    raise ValueError("neither `turns` nor `prompt` nor `messages`")


def _prompt(line: Line, stem: str, counts: Counter[str]) -> TextPrompt:
    task = (stem if line.task is None else line.task).strip()
    # --tasks takes names between commas, and a table has a row of its own for all tasks together.
    if not task or "," in task or task == ALL_TASKS:
        raise ValueError(f"{task!r} is no name for a task")
    name = f"{task}-{counts[task] + 1:02}" if line.id is None else str(line.id)
    if not (task + name).isprintable():
        raise ValueError(f"task {task!r}, id {name!r}: one of them cannot be printed")
    return TextPrompt(task, name, line.conversation)
