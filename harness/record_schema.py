"""``python -m harness.record_schema``: JSON Schema of records, for other programs.

What it prints is committed as ``harness/record_schema.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from harness.record import SCHEMA, Row

FILE = Path(__file__).with_suffix(".json")


def schema() -> dict[str, Any]:
    """JSON Schema of a line: a header, a row or a footer."""
    (row,), components = msgspec.json.schema_components((Row,), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Line of a record of specdec-harness, schema {SCHEMA}",
        "description": "A record is a file of JSON lines: a header, rows (verdict or generation), "
        "and a footer, which a run that did not come to its end lacks. Fields that are not "
        "required were added later, or have nothing to say.",
        **row,
        "$defs": components,
    }


def text() -> str:
    """The file's."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(text(), end="")
