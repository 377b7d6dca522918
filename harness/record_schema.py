"""``python -m harness.record_schema``: JSON Schema of records, for other programs.

What it prints is committed as ``harness/record_schema.json``; ``--check FILE...`` holds every line
of records to that file.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.command_line import BadInput, Parser, refuse
from harness.record import SCHEMA, Row

FILE = Path(__file__).with_suffix(".json")
SHOWN = 20  # lines that are wrong


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


def wrong(lines: Iterable[bytes]) -> list[str]:
    """Which of a record's lines are none by the committed file, and why.

    Raises
    ------
    BadInput
        If there is nothing here to check with.
    """
    if importlib.util.find_spec("jsonschema") is None:
        raise BadInput("--check needs jsonschema: pip install jsonschema")
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8")))
    found = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError:
            found.append(f"line {number}: not JSON")
            continue
        found += [
            f"line {number}: {e.json_path}: {e.message}" for e in validator.iter_errors(value)
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the schema, or check records by it; 1 if a line is wrong."""
    parser = Parser("python -m harness.record_schema", __doc__)
    parser.add_argument("--check", type=Path, nargs="+", metavar="FILE", help="records")
    given = parser.parse_args(arguments)
    if not given.check:
        print(text(), end="")
        return 0
    problems = []
    try:
        for path in given.check:
            lines = path.read_bytes().splitlines()
            problems += [f"{path}, {problem}" for problem in wrong(lines)]
            print(f"{path}: {len(lines)} lines")
    except (OSError, BadInput) as error:
        return refuse(error)
    print(*problems[:SHOWN], sep="\n", end="\n" if problems else "")
    print(f"{len(problems)} problems" if problems else "all as the schema says")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
