"""What all commands share: bad input is one line on stderr that says what to do, and status 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

BAD_INPUT = 2


class BadInput(ValueError):
    """What the user gave cannot be used; the message says why and what to do, in one line."""


class Parser(argparse.ArgumentParser):
    """Options are written out in full, help keeps its lines, and errors are one line."""

    def __init__(self, prog: str, description: str | None, **named: Any) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **named,
        )

    def error(self, message: str) -> NoReturn:
        """End the command."""
        raise SystemExit(refuse(f"{message} (see --help)"))


def require_positive(options: argparse.Namespace, *names: str) -> None:
    """Raise BadInput if one of these counts is given, and below 1."""
    for name in names:
        if (value := getattr(options, name)) is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {value}: ask for at least 1")


def key_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts of a repeatable option; BadInput for one that is none."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise BadInput(f"{option} {text!r}: it must be KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def refuse(error: object) -> int:
    """Say what is wrong with the input; returns the exit status."""
    print(f"error: {error}", file=sys.stderr)
    return BAD_INPUT
