"""The plugin's memory: the verdicts of all items, and what they add up to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import pytest_pairs, record
from harness.checks.budget import ALPHA
from harness.diagnosis import diagnose
from harness.expectations import Expectations
from harness.pytest_options import decoder_options
from harness.pytest_outcome import full_name, record_name
from harness.pytest_resume import TAKEN, Resumed
from harness.verdict import Status, Verdict

_BUDGET = ("profile", "draft_tokens", "samples", "seconds", "context_length")
_IF_GIVEN = ("isolate", "trust_remote_code", "keyword", "markexpr", "deselect")
_PHASES = ("setup", "call", "teardown")
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def header(config: pytest.Config) -> record.Header:
    """What runs, where, with what.

    Raises
    ------
    PairError
        If a pair cannot be had.
    """
    option = config.getoption
    return record.Header(
        command=record.command_line(),
        started=record.now(),
        seed=option("seed"),
        seeds={"prompts": option("seed"), "requests": option("seed")},
        alpha=ALPHA,
        decoders=[option("decoder")],
        pair=pytest_pairs.described(config),
        fingerprints=pytest_pairs.fingerprints(config),
        versions=record.versions(),
        machine=record.machine(),
        options={
            **{name: option(name) for name in _BUDGET},
            "items": config.args,
            **{name: option(name) for name in _IF_GIVEN if option(name)},
            "decoder_options": decoder_options(config),
        },
    )


class Recorder:
    """Collects verdicts in the controlling process, and delivers them as the options ask.

    Attributes
    ----------
    rows : list of VerdictRow
    taken : int
        How many of them were in the record already.
    surprises : list of str
        Items that passed, and were expected to fail.
    """

    def __init__(
        self,
        config: pytest.Config,
        expectations: Expectations,
        header: record.Header | None,
        resumed: Resumed | None,
    ) -> None:
        self.config = config
        self._header = header
        self.expectations = expectations
        self.rows: list[record.VerdictRow] = []
        self.taken = 0
        self.surprises: list[str] = []
        self._resumed = resumed or Resumed([])
        self._writer: record.Writer | None = None
        if header:
            path = Path(config.getoption("results"))
            self._writer = self._resumed.record.writer(path, header)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under xdist the items were collected elsewhere: what is used shows here.
        self.expectations.match(full_name(report))
        found: dict[str, Any] = dict(report.user_properties)
        if TAKEN in found:
            self._take(report)
        elif "verdict" in found:
            verdict = msgspec.convert(found["verdict"], Verdict)
            self._add(report, verdict, found)
        elif self._writer and report.when not in _PHASES:  # it took a worker of xdist along
            self._add(report, _crash(report), {})

    def _take(self, report: pytest.TestReport) -> None:
        """What is in the record already."""
        self.taken += 1
        rows = self._resumed.rows[record_name(report)]
        self.rows += rows
        if report.failed and all(row.verdict.passed for row in rows):
            self.surprises.append(rows[0].item)

    def _add(self, report: pytest.TestReport, verdict: Verdict, found: Mapping[str, Any]) -> None:
        item = record_name(report)
        row = record.VerdictRow(
            decoder=self.config.getoption("decoder"),
            item=item,
            suite=_suite(item),
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
        if told := self._resumed.record.told:
            write(f"{told}; {self.taken} verdicts were taken from it")
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

        whole = record.Record(self._header or header(self.config), self.rows, [], [])
        [standing] = standings([whole])
        text = github.summary(standing, self.surprises, stale)
        if path := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as page:
                page.write(text)
        else:
            write(text)
        for line in github.marks(standing, self.surprises):
            write(line)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if path := self.config.getoption("badge"):
            from harness.report.badge import badge

            text = badge(self.rows, self.config.getoption("profile"), exitstatus == 0)
            Path(path).write_text(text + "\n", encoding="utf-8")
        # A run that was cut short, by somebody or by --maxfail, has no footer.
        whole = exitstatus in _ENDED and not (session.shouldstop or session.shouldfail)
        if self._writer and whole:
            self._writer.close()


def _suite(item: str) -> str:
    return Path(item.partition("::")[0]).stem.removeprefix("test_")


def _crash(report: pytest.TestReport) -> Verdict:
    item = record_name(report)
    test = item.partition("::")[2].partition("[")[0].removeprefix("test_")
    return Verdict(
        check=f"{_suite(item)}.{test}",
        status=Status.ERROR,
        message=f"the process that ran it ended: {report.longreprtext}",
    )
