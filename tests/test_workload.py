"""The built-in tasks, and how prompts become token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import TemplateError

from harness.bench import controls
from harness.bench.prompt_files import Message, TextPrompt, read_task
from harness.bench.tasks import CONTROLS, EXTRA, KNOWN, TASKS, WRITTEN, WorkloadError
from harness.bench.workload import load_workload
from harness.models import ModelPair, load_pair
from harness.report.options import parse
from reference_impl.drafters.leads import LEADS

SPECIAL = (0, 1, 2)
SYSTEM, USER = Message("system", "Be brief."), Message("user", "Why?")


@pytest.fixture(scope="module")
def tiny() -> ModelPair:
    return load_pair("tiny")


class Characters:
    """A "tokenizer" of one id a character, or a message, of the real one's interface."""

    all_special_ids = SPECIAL

    def __init__(self, chat_template: str | None, refused: Sequence[str] = ()) -> None:
        self.chat_template, self.refused = chat_template, refused
        self.seen: list[list[dict[str, str]]] = []

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) % 64 for character in text]}

    def apply_chat_template(
        self, messages: list[dict[str, str]], **arguments: bool
    ) -> dict[str, list[int]]:
        assert arguments == {"add_generation_prompt": True, "return_dict": True}
        if any(message["role"] in self.refused for message in messages):
            raise TemplateError("role not supported")
        self.seen.append(messages)
        return {"input_ids": [len(message["content"]) % 64 for message in messages]}


def with_tokenizer(pair: ModelPair, tokenizer: Any, context: int = 4096) -> ModelPair:
    return ModelPair("fake", pair.target, pair.draft, 64, context, tokenizer=tokenizer)


def own(*messages: Message, task: str = "mine") -> dict[str, list[TextPrompt]]:
    return {task: [TextPrompt(task, f"{task}-{n}", messages) for n in range(3)]}


# The files


@pytest.mark.parametrize("task", WRITTEN)
def test_each_task_has_enough_well_formed_prompts(task: str) -> None:
    prompts = read_task(task)
    assert len(prompts) >= 24
    assert [prompt.id for prompt in prompts] == [f"{task}-{n + 1:02}" for n in range(len(prompts))]
    for prompt in prompts:
        roles = [message.role for message in prompt.messages if message.role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert "system" not in [message.role for message in prompt.messages[1:]]
        assert all(message.content.strip() == message.content for message in prompt.messages)


@pytest.mark.parametrize("task", WRITTEN)
def test_prompts_are_short_and_long_with_and_without_history(task: str) -> None:
    prompts = read_task(task)
    lengths = [sum(len(message.content) for message in prompt.messages) for prompt in prompts]
    assert max(lengths) > 8 * min(lengths)
    roles = [[message.role for message in prompt.messages] for prompt in prompts]
    assert any("assistant" in of for of in roles)
    assert any("system" in of for of in roles)


@pytest.mark.parametrize("task", WRITTEN)
def test_no_prompt_occurs_twice(task: str) -> None:
    said = Counter(p.messages[-1].content for other in WRITTEN for p in read_task(other))
    assert not [p.id for p in read_task(task) if said[p.messages[-1].content] > 1]


@pytest.mark.parametrize("task", WRITTEN)
def test_prompts_are_held_out_from_the_training_of_the_draft(task: str) -> None:
    leads = [lead.lower() for group in LEADS.values() for lead in group]
    texts = [m.content.lower() for p in read_task(task) for m in p.messages if m.role == "user"]
    assert not [(text, lead) for text in texts for lead in leads if lead in text]


# Names


def test_the_four_tasks_are_the_default_and_all_can_be_named() -> None:
    assert parse([]).tasks == TASKS == ("chat", "code", "math", "creative")
    assert parse(["--tasks", ",".join(KNOWN)]).tasks == KNOWN
    assert len(set(KNOWN)) == len(KNOWN) == len(TASKS) + len(EXTRA) + len(CONTROLS)


@pytest.mark.parametrize("template", [None, "template"])
@pytest.mark.parametrize("task", KNOWN)
def test_every_known_task_has_prompts(task: str, template: str | None, tiny: ModelPair) -> None:
    for pair in (tiny, with_tokenizer(tiny, Characters(template))):
        prompts = load_workload(pair, [task], 4, 8)
        assert [p.prompt_id for p in prompts] == [f"{task}-0{n}" for n in range(1, 5)]
        assert all(p.ids and p.task == task for p in prompts)


def test_unknown_task_names_the_known_ones(tiny: ModelPair) -> None:
    with pytest.raises(WorkloadError, match=r"unknown task 'poetry': known are chat, code, math"):
        read_task("poetry")
    with pytest.raises(WorkloadError, match=r"unknown task 'poetry': known are chat.*, random$"):
        load_workload(tiny, ["poetry"], 1, 8)


# Without a tokenizer


def test_random_prompts_repeat_and_differ_by_task(tiny: ModelPair) -> None:
    first, again = (load_workload(tiny, ["chat", "math"], 3, 8) for _ in range(2))
    assert first == again
    assert [p.prompt_id for p in first][:4] == ["chat-01", "chat-02", "chat-03", "math-01"]
    assert first[0].ids != first[3].ids
    assert all(0 <= token < 64 for prompt in first for token in prompt.ids)


def test_repetitive_prompts_without_text_are_periodic(tiny: ModelPair) -> None:
    prompts = load_workload(tiny, ["repetitive"], None, 8)
    period = controls.PERIOD
    assert all(p.ids[period:] == p.ids[:-period] for p in prompts)
    assert len({p.ids[:period] for p in prompts}) == len(prompts)


# With one


def test_chat_template_is_applied(tiny: ModelPair) -> None:
    prompts = load_workload(with_tokenizer(tiny, Characters("template")), ["chat"], None, 8)
    turns = {p.id: len(p.messages) for p in read_task("chat")}
    assert {p.prompt_id: len(p.ids) for p in prompts} == turns


def test_base_model_gets_the_text_itself(tiny: ModelPair) -> None:
    tokenizer = Characters(None)
    prompts = load_workload(with_tokenizer(tiny, tokenizer), ["mine"], 1, 8, own(SYSTEM, USER))
    assert [list(p.ids) for p in prompts] == [tokenizer("Be brief.\n\nWhy?")["input_ids"]]


def test_template_without_system_messages_gets_them_from_the_user(tiny: ModelPair) -> None:
    tokenizer = Characters("template", refused=["system"])
    load_workload(with_tokenizer(tiny, tokenizer), ["mine"], 1, 8, own(SYSTEM, USER))
    assert tokenizer.seen == [[{"role": "user", "content": "Be brief.\n\nWhy?"}]]


def test_template_that_refuses_a_prompt_is_named(tiny: ModelPair) -> None:
    pair = with_tokenizer(tiny, Characters("template", refused=["user"]))
    with pytest.raises(
        WorkloadError, match=r"prompt mine-0 .* template of fake: leave it out \(ro"
    ):
        load_workload(pair, ["mine"], 1, 8, own(USER))


def test_prompts_of_a_file_replace_the_built_in_ones(tiny: ModelPair) -> None:
    pair = with_tokenizer(tiny, Characters("template"))
    found = load_workload(pair, ["chat"], 2, 8, own(USER, task="chat"))
    assert [(p.task, p.prompt_id, p.ids) for p in found] == [
        ("chat", "chat-0", (4,)),
        ("chat", "chat-1", (4,)),
    ]
    with pytest.raises(WorkloadError, match=r"unknown task 'code': known are chat$"):
        load_workload(pair, ["code"], 2, 8, own(USER, task="chat"))


def test_pair_without_a_tokenizer_takes_no_text(tiny: ModelPair) -> None:
    with pytest.raises(WorkloadError, match=r"the pair tiny has no tokenizer and cannot read"):
        load_workload(tiny, ["mine"], 1, 8, own(USER))


def test_prompt_that_does_not_fit_is_named(tiny: ModelPair) -> None:
    with pytest.raises(WorkloadError, match=r"prompt code-01 .* exceed the context of 128: leave"):
        load_workload(tiny, ["code"], 1, 128)
    pair = with_tokenizer(tiny, Characters(None), context=128)
    long = own(USER, Message("user", "x" * 115))
    assert len(load_workload(pair, ["mine"], 1, 7, long)) == 1  # 4 + 2 + 115 characters
    with pytest.raises(WorkloadError, match=r"prompt mine-0 \(121 tokens\) and 8 new tokens"):
        load_workload(pair, ["mine"], 1, 8, long)


# Controls


def seen_before(items: Sequence[object], length: int = 3) -> float:
    """Share of n-grams that occurred earlier: what prompt lookup can draft from."""
    grams = [tuple(items[n : n + length]) for n in range(len(items) - length + 1)]
    return 1 - len(set(grams)) / len(grams)


def test_phrases_and_lists_repeat_themselves_and_counts_count() -> None:
    texts = controls.repetitive_texts()
    assert len(set(texts)) == len(texts) >= 24
    for text in (*texts[0::3], *texts[1::3]):
        assert seen_before(text.split()) > 0.6, text
    for text in texts[2::3]:
        numbers = [int("".join(filter(str.isdigit, item))) for item in text.split(", ")]
        assert len({after - n for n, after in pairwise(numbers)}) == 1


def test_random_prompts_of_text_models_have_no_special_ids_and_nothing_to_copy() -> None:
    pair: Any = SimpleNamespace(tokenizer=Characters(None), vocab_size=4000, eos=(3,))
    prompts = controls.prompts("random", pair)
    assert len(set(prompts)) == len(prompts) >= 24
    assert prompts == controls.prompts("random", pair)
    ids = {token for prompt in prompts for token in prompt}
    assert not ids & {*SPECIAL, 3}
    assert max(ids) < 4000
    assert max(seen_before(prompt) for prompt in prompts) == 0


def test_controls_go_around_the_chat_template(tiny: ModelPair) -> None:
    tokenizer = Characters("template")
    prompts = load_workload(with_tokenizer(tiny, tokenizer), CONTROLS, None, 8)
    assert not tokenizer.seen
    first = controls.repetitive_texts()[0]
    assert list(prompts[0].ids) == tokenizer(first)["input_ids"]
