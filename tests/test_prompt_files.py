"""Prompts of a user's own, in Spec-Bench's format and in the plain one."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from harness import record
from harness.bench.prompt_files import PromptFile, TextPrompt, by_task, read_files
from harness.bench.tasks import WorkloadError
from harness.command_line import BadInput
from harness.report.__main__ import main
from harness.report.options import parse
from harness.tiny_pairs import make_target

PLAIN = '{"prompt": "Why?"}'
QUESTION = '{"question_id": 81, "category": "writing", "turns": ["Why?", "And now?"]}'


def written(path: Path, *lines: object) -> Path:
    """A file of these lines; what is no text is put into JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def read(path: Path, *lines: object) -> list[TextPrompt]:
    return read_files([written(path, *lines)])[0].prompts


def said(prompt: TextPrompt) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in prompt.messages]


def names(prompts: list[TextPrompt]) -> list[tuple[str, str]]:
    return [(prompt.task, prompt.id) for prompt in prompts]


# Formats


def test_spec_bench(tmp_path: Path) -> None:
    """The first turn alone: the others follow answers that are not there."""
    found = read(
        tmp_path / "question.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["Draft a letter.", "Shorten it."]},
        {"question_id": 82, "category": "math", "turns": ["1 + 1?"], "reference": ["2"]},
        {"question_id": "83b", "category": "writing", "turns": ["Draft a poem."]},
    )
    assert names(found) == [("writing", "81"), ("math", "82"), ("writing", "83b")]
    assert [said(prompt) for prompt in found] == [
        [("user", "Draft a letter.")],
        [("user", "1 + 1?")],
        [("user", "Draft a poem.")],
    ]


def test_plain_prompts_are_numbered_within_the_task_of_the_files_name(tmp_path: Path) -> None:
    found = read(
        tmp_path / "own.jsonl",
        {"prompt": "Why?"},
        {"prompt": "When?", "task": "dates"},
        {"prompt": "Who?", "id": "who"},
        {"prompt": "Where?", "id": 7, "task": "dates"},
        {"prompt": "What?", "source": "ignored"},
    )
    assert names(found) == [
        ("own", "own-01"),
        ("dates", "dates-01"),
        ("own", "who"),
        ("dates", "7"),
        ("own", "own-03"),
    ]
    assert said(found[1]) == [("user", "When?")]


def test_plain_messages(tmp_path: Path) -> None:
    turns = [
        ("system", "Be brief."),
        ("user", "Why?"),
        ("assistant", "Because."),
        ("user", "Übrigens: 何?"),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    (found,) = read(tmp_path / "own.jsonl", {"messages": messages})
    assert said(found) == turns


@pytest.mark.parametrize("line", [PLAIN, QUESTION])
def test_marks_line_ends_and_empty_lines_of_other_systems(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n" + line.encode() + b"\r\n  \r\n")
    (file,) = read_files([path])
    assert [said(prompt) for prompt in file.prompts] == [[("user", "Why?")]]


def test_a_file_is_known_by_its_digest(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", PLAIN)
    (file,) = read_files([path])
    assert (file.path, file.sha256) == (path, hashlib.sha256(path.read_bytes()).hexdigest())


# Several files


def two_files(folder: Path) -> list[PromptFile]:
    first = written(folder / "a.jsonl", {"prompt": "Why?", "task": "t"}, {"prompt": "When?"})
    second = written(folder / "b.jsonl", QUESTION, {**json.loads(QUESTION), "question_id": 82})
    third = written(folder / "c.jsonl", {"prompt": "Who?", "task": "t"})
    return read_files([first, second, third, first])


def test_several_files_are_one_workload(tmp_path: Path) -> None:
    found = by_task(two_files(tmp_path))
    assert [(task, [p.id for p in prompts]) for task, prompts in found.items()] == [
        ("t", ["t-01", "t-02"]),
        ("a", ["a-01"]),
        ("writing", ["81", "82"]),
    ]


def test_tasks_are_chosen_in_the_order_asked_for(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    assert list(by_task(files, ["writing", "t"])) == ["writing", "t"]
    with pytest.raises(WorkloadError, match=r"unknown task 'chat': known are t, a, writing$"):
        by_task(files, ["t", "chat"])


# Bad input


@pytest.mark.parametrize(
    ("lines", "number", "words"),
    [
        (["Why?"], 1, "JSON is malformed"),
        ([PLAIN, '{"prompt": "Why?"'], 2, "Input data was truncated"),
        (["[", PLAIN, "]"], 1, "Expected `object`, got `array`"),
        (['["Why?"]'], 1, "Expected `object`, got `array`"),
        (["", '{"text": "Why?"}'], 2, "neither `turns` nor `prompt` nor `messages`"),
        ([PLAIN, '{"text": "Why?"}'], 2, "either `prompt` or `messages` is needed"),
        ([PLAIN, QUESTION], 2, "either `prompt` or `messages` is needed"),
        ([QUESTION, PLAIN], 2, "missing required field `question_id`"),
        (['{"question_id": 1, "turns": ["Why?"]}'], 1, "missing required field `category`"),
        (['{"question_id": 1, "category": "x", "turns": "Why?"}'], 1, "Expected `array`"),
        (['{"question_id": 1, "category": "x", "turns": []}'], 1, "`turns` is empty"),
        (['{"question_id": 1, "category": "x", "turns": [" "]}'], 1, "without content"),
        ([QUESTION, QUESTION], 2, "a second prompt '81' of the task 'writing'"),
        (['{"prompt": 1}'], 1, "Expected `str | null`, got `int`"),
        (['{"prompt": "\\n"}'], 1, "a message without content"),
        (['{"prompt": "\\ud800 is half a pair"}'], 1, "JSON is malformed: unexpected end"),
        (['{"prompt": "Why?", "messages": [{"role": "user", "content": "?"}]}'], 1, "either"),
        (['{"messages": []}'], 1, "the last of `messages` has to be the user's"),
        (['{"messages": [{"role": "assistant", "content": "Hm."}]}'], 1, "the last of"),
        (['{"messages": [{"role": "tool", "content": "1"}]}'], 1, "Invalid enum value 'tool'"),
        (['{"messages": [{"role": "user"}]}'], 1, "missing required field `content`"),
        (['{"prompt": "Why?", "task": "all"}'], 1, "'all' is no name for a task"),
        (['{"prompt": "Why?", "task": "a,b"}'], 1, "'a,b' is no name for a task"),
        (['{"prompt": "Why?", "task": " "}'], 1, "'' is no name for a task"),
        (['{"prompt": "Why?", "id": "a\\nb"}'], 1, "one of them cannot be printed"),
        (['{"prompt": ' + "[" * 100_000], 1, "recursion"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], number: int, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", *lines)
    with pytest.raises(
        WorkloadError, match=rf"^{re.escape(str(path))}, line {number}: "
    ) as refused:
        read_files([path])
    message = str(refused.value)
    assert words in message
    assert ': a line has to be {"' in message
    assert "\n" not in message


def test_what_a_line_has_to_be_is_told_by_the_first_one(tmp_path: Path) -> None:
    for line, form, other in ((PLAIN, "prompt", "turns"), (QUESTION, "turns", "prompt")):
        with pytest.raises(WorkloadError) as refused:
            read(tmp_path / "x.jsonl", line, "?")
        needed = str(refused.value).partition("a line has to be")[2]
        assert f'"{form}"' in needed
        assert f'"{other}"' not in needed


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"prompt": "caf\xe9"}\n')
    with pytest.raises(WorkloadError, match=r"x\.jsonl, line 1: .*(utf-8|UTF-8)"):
        read_files([path])


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_prompts_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(WorkloadError, match=r'x\.jsonl holds no prompts: a line .* {"question_id"'):
        read_files([path])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"cannot read .*nothing\.jsonl: No such file"):
        read_files([tmp_path / "nothing.jsonl"])
    with pytest.raises(WorkloadError, match=r"cannot read .*: Is a directory"):
        read_files([tmp_path])


# The command


def test_options() -> None:
    found = parse(["--prompts-file", "a.jsonl", "--prompts-file", "b.jsonl"])
    assert (found.prompts_files, found.tasks) == ((Path("a.jsonl"), Path("b.jsonl")), ())
    found = parse(["--prompts-file", "a.jsonl", "--tasks", "writing, coding"])
    assert found.tasks == ("writing", "coding")
    for arguments, words in [
        (["--prompts-file", "a.jsonl", "--tasks", ","], "--tasks is empty"),
        (["--from", "x", "--prompts-file", "a.jsonl"], "--prompts-file has no effect with --from"),
        (["--tasks", "writing"], "--tasks does not know 'writing'"),
    ]:
        with pytest.raises(BadInput, match=words):
            parse(arguments)


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("", (), "holds no prompts"),
        ("?", (), "x.jsonl, line 1: JSON is malformed"),
        (PLAIN, ("--tasks", "poetry"), "unknown task 'poetry': known are x"),
        (PLAIN, (), "the pair tiny has no tokenizer and cannot read prompts of a file"),
    ],
)
def test_bad_files_are_one_line(
    content: str,
    more: tuple[str, ...],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path / "x.jsonl", content)
    arguments = ["--pair", "tiny", "--prompts-file", str(path), "--out", str(tmp_path / "out")]
    assert main([*arguments, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line


def model_with_words(directory: Path) -> str:
    """A tiny model whose tokenizer knows a few words and a chat template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    make_target("llama", 64, seed=1).save_pretrained(directory)
    words = ["?", "user", "Why", *(f"w{n}" for n in range(61))]
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.chat_template = (
        "{% for message in messages %}{{ message.role + ' ' + message.content + ' ' }}{% endfor %}"
    )
    fast.save_pretrained(directory)
    return str(directory)


def test_a_run_over_a_file_says_which_file_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The decoder is wrong, so that the report also says how to see it again."""
    lines = [{"question_id": n, "category": f"c{n % 3}", "turns": ["Why?"]} for n in range(9)]
    path = written(tmp_path / "question.jsonl", *lines)
    model = model_with_words(tmp_path / "model")
    arguments = ["--target", model, "--draft", model, "--prompts-file", str(path)]
    arguments += ["--tasks", "c2,c0", "--prompts", "2", "--max-new-tokens", "8"]
    out = tmp_path / "out"
    assert main([*arguments, "--decoder", "tests.changed_decoders:wrong", "--out", str(out)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest[:12] in shown
    found = record.read(out / "record.jsonl")
    assert found.header.options["tasks"] == ["c2", "c0"]
    assert found.header.options["prompts_files"] == [{"name": str(path), "sha256": digest}]
    prompts = {(row.task, row.prompt_id, row.prompt_tokens) for row in found.generations}
    assert prompts == {("c2", "2", 3), ("c2", "5", 3), ("c0", "0", 3), ("c0", "3", 3)}
    report = (out / "report.md").read_text()
    (again,) = re.findall(r"python -m harness\.report --decoder.*", report)
    assert f"--prompts-file {path}" in again
