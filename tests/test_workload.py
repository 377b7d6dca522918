"""The prompt files, and how they become token ids."""

from __future__ import annotations

import pytest

from harness.bench.workload import TASKS, WorkloadError, load_workload, read_task
from harness.models import ModelPair, load_pair
from harness.report import options
from reference_impl.drafters.leads import LEADS


@pytest.fixture(scope="module")
def tiny() -> ModelPair:
    return load_pair("tiny")


def with_tokenizer(pair: ModelPair, chat_template: str | None) -> ModelPair:
    """A pair whose "tokenizer" counts characters."""

    def encode(text: str) -> dict[str, list[int]]:
        return {"input_ids": [len(text) % 64]}

    def apply_chat_template(
        messages: list[dict[str, str]], **arguments: bool
    ) -> dict[str, list[int]]:
        assert arguments == {"add_generation_prompt": True, "return_dict": True}
        return {"input_ids": [len(message["content"]) % 64 for message in messages]}

    tokenizer = encode
    tokenizer.chat_template = chat_template  # type: ignore[attr-defined]
    tokenizer.apply_chat_template = apply_chat_template  # type: ignore[attr-defined]
    return ModelPair("fake", pair.target, pair.draft, 64, 128, tokenizer=tokenizer)


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_enough_well_formed_prompts(task: str) -> None:
    prompts = read_task(task)
    assert len(prompts) >= 12
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert all(prompt.id.startswith(f"{task}-") for prompt in prompts)
    for prompt in prompts:
        roles = [message.role for message in prompt.messages]
        assert roles in (["user"], ["user", "assistant", "user"])
        assert all(message.content.strip() == message.content for message in prompt.messages)
    assert any(len(prompt.messages) > 1 for prompt in prompts)


@pytest.mark.parametrize("task", TASKS)
def test_prompts_are_held_out_from_the_training_of_the_draft(task: str) -> None:
    leads = [lead.lower() for group in LEADS.values() for lead in group]
    texts = [m.content.lower() for p in read_task(task) for m in p.messages if m.role == "user"]
    assert not [(text, lead) for text in texts for lead in leads if lead in text]


def test_the_command_line_names_the_same_tasks() -> None:
    assert options.TASKS == TASKS


def test_unknown_task_names_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match=r"unknown task 'poetry': known are chat, code, math"):
        read_task("poetry")


def test_random_prompts_repeat_and_differ_by_task(tiny: ModelPair) -> None:
    first, again = (load_workload(tiny, ["chat", "math"], 3, 8) for _ in range(2))
    assert first == again
    assert [p.prompt_id for p in first][:4] == ["chat-01", "chat-02", "chat-03", "math-01"]
    assert first[0].ids != first[3].ids
    assert all(0 <= token < 64 for prompt in first for token in prompt.ids)


def test_chat_template_is_applied(tiny: ModelPair) -> None:
    prompts = load_workload(with_tokenizer(tiny, "template"), ["chat"], None, 8)
    turns = {p.id: len(p.messages) for p in read_task("chat")}
    assert {p.prompt_id: len(p.ids) for p in prompts} == turns


def test_base_model_gets_the_text_itself(tiny: ModelPair) -> None:
    prompts = load_workload(with_tokenizer(tiny, None), ["chat"], 1, 8)
    assert prompts[0].ids == (len(read_task("chat")[0].messages[0].content) % 64,)


def test_prompt_that_does_not_fit_is_named(tiny: ModelPair) -> None:
    with pytest.raises(WorkloadError, match=r"prompt code-01 .* exceed the context of 128: leave"):
        load_workload(tiny, ["code"], 1, 128)
