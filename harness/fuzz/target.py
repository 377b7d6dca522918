"""What is fed, and how a decoder is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from harness.checks.subject import Refused, Subject
from harness.contract import Request
from harness.models import load_pair

REQUEST = Request(prompt=(1, 2), max_new_tokens=3, eos=(7,), logprobs=True)
VOCABULARY = 8
Example = Any


@dataclass(frozen=True)
class Target:
    """Something that reads bytes.

    Attributes
    ----------
    name : str
    examples : strategy
    read : callable
        Reads one; what is documented for it, it keeps to itself.
    """

    name: str
    examples: st.SearchStrategy[Example]
    read: Callable[[Example], None]


def ask(decoder: Any, streams: bool, documented: tuple[type[Exception], ...]) -> None:
    """Ask as checks do: an answer in the contract's form, or a refusal for a documented reason."""
    subject = Subject(decoder, load_pair(vocab_size=VOCABULARY), "fuzz")
    try:
        if streams:
            subject.stream(REQUEST)
        else:
            subject.ask([REQUEST])
    except Refused as error:
        if (cause := error.__cause__) is not None and not isinstance(cause, documented):
            raise cause from None
