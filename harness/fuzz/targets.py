"""What reads bytes of strangers, each as a function of them, and the errors that may come of it."""

from __future__ import annotations

from harness.adapters.http_apis import APIS
from harness.fuzz.answers import answers
from harness.fuzz.records import records
from harness.fuzz.replies import replies
from harness.fuzz.target import Target


def targets() -> list[Target]:
    """All of them."""
    return [replies(), *(answers(api) for api in APIS), records()]
