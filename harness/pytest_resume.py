"""``--resume``: items that have a row in the record are not run again, and end as it says."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.pytest_outcome import end, record_name
from harness.record import Header, VerdictRow
from harness.resume import Kept, kept

TAKEN = "taken"  # property of the report of an item that was not run
_SENT = "specdec_taken"  # to the workers of xdist


class Resumed:
    """The rows that a record has already; a plugin of the controlling process and its workers."""

    def __init__(self, verdicts: Sequence[VerdictRow], record: Kept | None = None) -> None:
        self.record = record or Kept()
        self.rows: dict[str, list[VerdictRow]] = {}
        for row in verdicts:
            self.rows.setdefault(row.item, []).append(row)

    @classmethod
    def from_file(cls, path: Path, header: Header) -> Resumed:
        """Raise BadInput unless that is a record of the run that ``header`` is of."""
        record = kept(path, header)
        return cls(record.verdicts, record)

    @classmethod
    def sent_to(cls, worker: dict[str, Any]) -> Resumed:
        """What the controlling process sent to a worker."""
        return cls(msgspec.json.decode(worker.get(_SENT, "[]"), type=list[VerdictRow]))

    def row(self, item: pytest.Item | pytest.TestReport) -> VerdictRow | None:
        """That an item ends by: of several the first that is no PASS."""
        rows = self.rows.get(record_name(item), ())
        return next((row for row in rows if not row.verdict.passed), next(iter(rows), None))

    def expected(self, item: pytest.Item, reason: str, strict: bool) -> tuple[str, bool]:
        """Why an item is expected to fail, and whether it must: a row's own word goes first.

        A failure that the record calls unexpected stays one, whatever the files say by now.
        """
        if (row := self.row(item)) is None:
            return reason, strict
        if row.expected_failure:
            return row.expected_failure, not row.verdict.passed
        return (reason if row.verdict.passed else ""), strict

    @pytest.hookimpl(optionalhook=True)  # of xdist
    def pytest_configure_node(self, node: Any) -> None:
        rows = [row for rows in self.rows.values() for row in rows]
        node.workerinput[_SENT] = msgspec.json.encode(rows).decode()

    def pytest_collection_modifyitems(self, items: Iterable[pytest.Item]) -> None:
        for item in items:
            if isinstance(item, pytest.Function) and self.row(item):
                item.fixturenames = []  # no pair is loaded for it, no decoder built

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if (row := self.row(pyfuncitem)) is None:
            return None
        end(row.verdict)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call" and self.row(item):
            report.user_properties.append((TAKEN, True))
        return report
