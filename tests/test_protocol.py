"""The protocol on stdio: its schema, its page, and the lines of real sessions."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from json_schema import problems
from strategies import GREEDY, HOT, examples, requests

from harness import protocol
from harness.contract import CAPABILITIES, Completion, Request, Sampling
from harness.protocol import FromChild, ToChild

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "stdio.md").read_text()
SCHEMA = json.loads((ROOT / "docs" / "stdio.schema.json").read_text())
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node on the PATH")


def of_child(line: str | bytes) -> list[str]:
    return problems(json.loads(line), SCHEMA, SCHEMA["$defs"]["fromChild"])


def to_child(line: str | bytes) -> list[str]:
    return problems(json.loads(line), SCHEMA, SCHEMA["$defs"]["toChild"])


def test_the_schema_file_is_what_the_command_prints() -> None:
    assert msgspec.json.decode(msgspec.json.encode(protocol.schema())) == SCHEMA


def test_the_schema_refers_to_what_it_has_and_uses_no_keyword_that_is_not_understood_here() -> None:
    understood = {"$ref", "anyOf", "enum", "type", "items", "properties", "required"}
    understood |= {"additionalProperties", "propertyNames", "discriminator"}
    understood |= {"title", "description", "default"}

    def walk(schema: Any) -> None:
        assert schema.keys() <= understood
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/$defs/") in SCHEMA["$defs"]
        for inner in (schema.get("items"), schema.get("additionalProperties")):
            if isinstance(inner, dict):
                walk(inner)
        for inner in (*schema.get("anyOf", ()), *schema.get("properties", {}).values()):
            walk(inner)

    for schema in SCHEMA["$defs"].values():
        walk(schema)


@examples(100)
@given(requests(vocab=8, temperatures=GREEDY | HOT))
def test_any_request_arrives_as_it_was_sent(request: Request) -> None:
    sent = protocol.Generate(id=1, requests=[protocol.finite(request)])
    line = msgspec.json.encode(sent)
    assert to_child(line) == []
    assert msgspec.json.decode(line, type=ToChild) == sent


def test_infinity_is_sent_in_a_number_that_json_has() -> None:
    bias = {1: float("-inf"), 2: -3.0}
    request = Request(prompt=(1,), max_new_tokens=1, sampling=Sampling(logit_bias=bias))
    assert protocol.finite(request).sampling.logit_bias == {1: protocol.BANNED, 2: -3.0}
    completion = Completion(tokens=[1], finish_reason="length", logprobs=[float("-inf")])
    assert protocol.finite_answer(completion).logprobs == [protocol.BANNED]


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "ready", "id": 0, "protocol": 1, "capabilities": []}',
        '{"type": "piece", "id": 3, "tokens": [1, 2]}',
        '{"type": "error", "id": 3, "message": "m"}',
        '{"type": "piece", "id": 3, "tokens": [], "done": true, "new": {"field": [1]}}',
        '{"type": "completions", "id": 1, "completions": [{"tokens": [1], "finish_reason": "eos", '
        '"logprobs": [-1], "rounds": [{"drafted": 4, "accepted": 2}], "metrics": {"seconds": 2}}]}',
    ],
)
def test_schema_and_harness_take_the_same_answers(line: str) -> None:
    assert of_child(line) == []
    msgspec.json.decode(line, type=FromChild)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"type": "ready", "id": 0, "protocol": 1}', "'capabilities' is a required property"),
        ('{"type": "piece", "id": "3", "tokens": []}', "'3' is not of type 'integer'"),
        ('{"type": "piece", "tokens": []}', "'id' is a required property"),
        ('{"type": "piece", "id": 3, "tokens": [1.5]}', "1.5 is not of type 'integer'"),
        ('{"type": "error", "id": 3, "message": "m", "reason": "bad"}', "'bad' is not one of"),
        ('{"type": "answer", "id": 3}', "'answer' is not one of"),
        (
            '{"type": "completions", "id": 1, "completions": [{"tokens": [1]}]}',
            "'finish_reason' is a required property",
        ),
        (
            '{"type": "completions", "id": 1, "completions": [{"tokens": [1], "finish_reason": '
            '"eos", "logprobs": [null]}]}',
            "[None] is not valid under any",
        ),
        ("[]", "[] is not of type 'object'"),
    ],
)
def test_schema_and_harness_refuse_the_same_answers(line: str, problem: str) -> None:
    assert of_child(line)
    value, kinds = json.loads(line), SCHEMA["$defs"]["fromChild"]["anyOf"]
    assert any(problem in p for kind in kinds for p in problems(value, SCHEMA, kind))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(line, type=FromChild)


def shown() -> list[str]:
    """The session on the page."""
    [block] = re.findall(r"```json lines\n(.*?)```", PAGE, re.DOTALL)
    return block.splitlines()


def test_every_line_on_the_page_is_by_the_schema() -> None:
    for line in shown():
        direction, text = line[:2], line[2:]
        assert (to_child if direction == "> " else of_child)(text) == []
        msgspec.json.decode(text, type=ToChild if direction == "> " else FromChild)
    said = {json.loads(line[2:])["type"] for line in shown()}
    types = SCHEMA["$defs"]["toChild"]["discriminator"]["mapping"]
    assert said == {*types, *SCHEMA["$defs"]["fromChild"]["discriminator"]["mapping"]}


def test_the_page_says_every_message_reason_and_capability() -> None:
    for mapping in ("toChild", "fromChild"):
        for name in SCHEMA["$defs"][mapping]["discriminator"]["mapping"]:
            assert f"| `{name}` |" in PAGE or f"`{name}`" in PAGE
    for reason in SCHEMA["$defs"]["Error"]["properties"]["reason"]["enum"]:
        assert f"| `{reason}` |" in PAGE
    for name, words in CAPABILITIES.items():
        assert f"| `{name}` | {words} |" in PAGE or name == "exact_law"  # which needs Python
    assert f"now {protocol.VERSION}." in PAGE


def example(name: str) -> ModuleType:
    path = ROOT / "examples" / "stdio_node" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_node
def test_the_session_on_the_page_is_a_real_one() -> None:
    script = example("session")

    def without_version(lines: list[str]) -> list[str]:
        return [re.sub(r'"node":"[^"]+"', '"node":"..."', line) for line in lines]

    assert without_version(script.session(script.DECODER)) == without_version(shown())
