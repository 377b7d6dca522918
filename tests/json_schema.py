"""Values held to a JSON Schema, of the keywords that msgspec writes."""

from __future__ import annotations

from typing import Any


def problems(value: Any, whole: dict[str, Any], rule: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with a value by a schema, or by one rule in it."""
    return _problems(value, whole["$defs"], whole if rule is None else rule, "$")


def _problems(value: Any, definitions: Any, schema: dict[str, Any], where: str) -> list[str]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _problems(value, definitions, definitions[name], where)
    if "anyOf" in schema:
        found = [_problems(value, definitions, option, where) for option in schema["anyOf"]]
        return [] if [] in found else min(found, key=len)
    if "enum" in schema:
        return (
            [] if value in schema["enum"] else [f"{where}: {value!r} is none of {schema['enum']}"]
        )
    if "type" not in schema:  # anything
        return []
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    right = isinstance(value, kinds[schema["type"]])
    if not right or (isinstance(value, bool) and schema["type"] != "boolean"):
        return [f"{where}: {value!r} is no {schema['type']}"]
    if isinstance(value, list):
        return [
            p
            for i, v in enumerate(value)
            for p in _problems(v, definitions, schema.get("items", {}), f"{where}[{i}]")
        ]
    if not isinstance(value, dict):
        return []
    known = schema.get("properties", {})
    missing = [f"{where}: no {name}" for name in schema.get("required", []) if name not in value]
    inner = [
        problem
        for name, entry in value.items()
        for rule in [known.get(name, schema.get("additionalProperties"))]
        if isinstance(rule, dict)
        for problem in _problems(entry, definitions, rule, f"{where}.{name}")
    ]
    names = schema.get("propertyNames", {})
    outside = [f"{where}: {n!r} is no name" for n in value if n not in names.get("enum", value)]
    return missing + outside + inner
