"""Values held to a JSON Schema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator


def problems(value: Any, whole: dict[str, Any], rule: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with a value by a schema, or by one rule in it."""
    schema = whole if rule is None else {**rule, "$defs": whole["$defs"]}
    errors = Draft202012Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in errors]
