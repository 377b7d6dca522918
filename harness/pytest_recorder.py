"""The plugin's memory: the verdicts of all items, and what they add up to."""

from __future__ import annotations

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


def open_record(config: pytest.Config, path: Path, options: Mapping[str, str]) -> record.Writer:
    """Open the record of a run, and write its header."""
    option = config.getoption
    pair = option("pair") or ("custom" if option("target") else "tiny pairs")
    header = record.Header(
        command=record.command_line(),
        started=record.now(),
        seed=option("seed"),
        alpha=ALPHA,
        decoders=[option("decoder")],
        pair=record.PairInfo(pair, option("target") or "", "", option("device"), "float32"),
        versions=record.versions(),
        machine=record.machine(),
        options={"profile": option("profile"), **options},
    )
    return record.Writer(path, header)


class Recorder:
    """Collects verdicts in the controlling process, and writes them."""

    def __init__(
        self, config: pytest.Config, writer: record.Writer | None, expectations: Expectations
    ) -> None:
        self.config = config
        self.writer = writer
        self.expectations = expectations
        self.verdicts: list[Verdict] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under xdist the items were collected elsewhere: what is used shows here.
        self.expectations.match(report.nodeid)
        found: dict[str, Any] = dict(report.user_properties)
        if "verdict" in found:
            verdict = msgspec.convert(found["verdict"], Verdict)
            self._take(report, verdict, found.get("versions", {}))

    def _take(self, report: pytest.TestReport, verdict: Verdict, versions: dict[str, str]) -> None:
        self.verdicts.append(verdict)
        if self.writer:
            self.writer.add(
                record.VerdictRow(
                    decoder=self.config.getoption("decoder"),
                    item=report.nodeid,
                    suite=Path(report.nodeid.split("::")[0]).stem.removeprefix("test_"),
                    seconds=round(report.duration, 3),
                    expected_failure=str(getattr(report, "wasxfail", "")),
                    decoder_versions=versions,
                    verdict=verdict,
                )
            )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.verdicts:
            counts = Counter(verdict.status for verdict in self.verdicts)
            words = ", ".join(f"{counts[s]} {s.value}" for s in Status if counts[s])
            terminalreporter.write_line(f"verdicts of {self.config.getoption('decoder')}: {words}")
        kind, checks = diagnose(self.verdicts)
        if kind:
            terminalreporter.write_line(f"likely kind of fault: {kind.value} ({', '.join(checks)})")
        for line in self.expectations.unused():
            terminalreporter.write_line(f"stale entry, matches no item of this run: {line}")

    def pytest_sessionfinish(self) -> None:
        if self.writer:
            self.writer.close()
