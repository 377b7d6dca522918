"""The plugin's memory: the verdicts of all items, and what they add up to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import record
from harness.checks.budget import ALPHA
from harness.diagnosis import diagnose
from harness.expectations import Expectations
from harness.verdict import Status, Verdict


def header(config: pytest.Config, options: Mapping[str, str]) -> record.Header:
    """What runs, where, with what."""
    option = config.getoption
    pair = option("pair") or ("custom" if option("target") else "tiny pairs")
    if option("vocab_size"):
        pair = f"no weights, {option('vocab_size')} ids"
    return record.Header(
        command=record.command_line(),
        started=record.now(),
        seed=option("seed"),
        alpha=ALPHA,
        decoders=[option("decoder")],
        pair=record.PairInfo(pair, option("target") or "", "", option("device"), option("dtype")),
        versions=record.versions(),
        machine=record.machine(),
        options={"profile": option("profile"), **options},
    )


def full_name(item: pytest.Item | pytest.TestReport) -> str:
    """The id of an item, with its file: pytest leaves that out of a module that lies elsewhere."""
    file = Path(item.location[0]).name
    return f"{file}{item.nodeid}" if item.nodeid.startswith("::") else item.nodeid


class Recorder:
    """Collects verdicts in the controlling process, and delivers them as the options ask.

    Attributes
    ----------
    rows : list of VerdictRow
    surprises : list of str
        Items that passed, and were expected to fail.
    """

    def __init__(
        self, config: pytest.Config, options: Mapping[str, str], expectations: Expectations
    ) -> None:
        self.config = config
        self.expectations = expectations
        self.rows: list[record.VerdictRow] = []
        self.surprises: list[str] = []
        self._options = options
        path = config.getoption("results")
        self._writer = record.Writer(Path(path), header(config, options)) if path else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under xdist the items were collected elsewhere: what is used shows here.
        name = full_name(report)
        self.expectations.match(name)
        found: dict[str, Any] = dict(report.user_properties)
        if "verdict" in found:
            verdict = msgspec.convert(found["verdict"], Verdict)
            self._take(name, report, verdict, found)

    def _take(
        self, name: str, report: pytest.TestReport, verdict: Verdict, found: Mapping[str, Any]
    ) -> None:
        # An installed package lies wherever it lies: a record's item begins with its suite.
        path, colons, test = name.partition("::")
        item = f"suites/{Path(path).name}{colons}{test}"
        row = record.VerdictRow(
            decoder=self.config.getoption("decoder"),
            item=item,
            suite=Path(path).stem.removeprefix("test_"),
            seconds=round(report.duration, 3),
            expected_failure=str(getattr(report, "wasxfail", "")),
            decoder_versions=found.get("versions", {}),
            retries=found.get("retries", 0),
            verdict=verdict,
        )
        self.rows.append(row)
        if verdict.passed and report.failed:
            self.surprises.append(item)
        if self._writer:
            self._writer.add(row)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        verdicts = [row.verdict for row in self.rows]
        if verdicts:
            counts = Counter(verdict.status for verdict in verdicts)
            words = ", ".join(f"{counts[s]} {s.value}" for s in Status if counts[s])
            write(f"verdicts of {self.config.getoption('decoder')}: {words}")
        kind, checks = diagnose(verdicts)
        if kind:
            write(f"likely kind of fault: {kind.value} ({', '.join(checks)})")
        stale = self.expectations.unused()
        for line in stale:
            write(f"stale entry, matches no item of this run: {line}")
        if self.config.getoption("format") == "github":
            self._to_github(write, stale)

    def _to_github(self, write: Any, stale: list[str]) -> None:
        """The summary of the step, and marks in the log."""
        from harness.report import github
        from harness.report.standings import standings

        whole = record.Record(header(self.config, self._options), self.rows, [], [])
        [standing] = standings([whole])
        text = github.summary(standing, self.surprises, stale)
        if path := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as page:
                page.write(text)
        else:
            write(text)
        for line in github.marks(standing, self.surprises):
            write(line)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if path := self.config.getoption("badge"):
            from harness.report.badge import badge

            text = badge(self.rows, self.config.getoption("profile"), exitstatus == 0)
            Path(path).write_text(text + "\n", encoding="utf-8")
        if self._writer:
            self._writer.close()
