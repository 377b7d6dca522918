"""How an item of the suites is called, and how a verdict ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.verdict import Status, Verdict


def full_name(item: pytest.Item | pytest.TestReport) -> str:
    """The id of an item, with its file: pytest leaves that out of a module that lies elsewhere."""
    file = Path(item.location[0]).name
    return f"{file}{item.nodeid}" if item.nodeid.startswith("::") else item.nodeid


def record_name(item: pytest.Item | pytest.TestReport) -> str:
    """What a record calls it: an installed package lies wherever it lies, its suites do not."""
    path, colons, test = full_name(item).partition("::")
    return f"suites/{Path(path).name}{colons}{test}"


def end(verdict: Verdict) -> None:
    """PASS passes, UNSUPPORTED skips, all others fail."""
    if verdict.status is Status.UNSUPPORTED:
        pytest.skip(f"UNSUPPORTED {verdict.check}: {verdict.message}")
    if not verdict.passed:
        pytest.fail(str(verdict), pytrace=False)
