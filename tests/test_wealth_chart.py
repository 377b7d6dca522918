"""The wealth curve of a sampled run: a wrong decoder's crosses the line, a right one's does not."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness import record
from harness.bench import gate
from harness.bench.measure import Settings
from harness.report import wealth
from harness.report.__main__ import main
from harness.report.formats import text_of
from harness.report.render import render
from harness.stats.eprocess import EProcess
from harness.stats.experts import NAMED
from harness.verdict import Status
from tests.records import made
from tests.test_gate import PROMPTS, TOKENS, verdict
from tests.timed_rows import row


@pytest.mark.parametrize(
    ("name", "status"), [("accept_all", Status.FAIL), ("reference", Status.PASS)]
)
def test_only_a_wrong_decoder_crosses_the_line(name: str, status: Status) -> None:
    found = verdict(name)
    assert found.status is status
    evidence = found.evidence
    threshold = -math.log10(evidence["alpha_of_an_arm"])
    speculative, plain = evidence["path"], evidence["plain_arm"]["path"]
    for path in (speculative, plain):
        assert path[0] == (0, 0.0)
        assert path[-1][0] == 2 * PROMPTS * TOKENS
        assert [tokens for tokens, _ in path] == sorted(tokens for tokens, _ in path)
    assert (max(log10 for _, log10 in speculative) >= threshold) == (status is Status.FAIL)
    assert max(log10 for _, log10 in plain) < threshold
    (chart,) = wealth.charts([gate.as_row(name, _settings(), 0.1, found)], [name])
    svg = chart.draw("wealth")
    ElementTree.fromstring(svg)
    assert f">{name}<" in svg
    assert ">its plain arm<" in svg
    assert "1 / alpha = 2e+04: not lossless" in svg
    assert chart.draw("wealth") == svg


def _settings() -> Settings:
    return Settings(TOKENS, 3, 64, 1.0, seed=1)


def test_a_long_path_is_thinned_and_keeps_its_ends() -> None:
    process = EProcess(NAMED, q=True, alpha=0.5)
    assert gate._at(process) == (0, 0.0)
    for length in (1, 2, gate.MOST, gate.MOST + 1, 1000):
        path = [(i, float(i)) for i in range(length)]
        thinned = gate._thinned(path)
        assert len(thinned) <= gate.MOST
        assert (thinned[0], thinned[-1]) == (path[0], path[-1])
        assert thinned == sorted(set(thinned))


def test_a_run_has_the_curve_on_its_page(tmp_path: Path) -> None:
    arguments = ["--pair", "tiny", "--tasks", "chat", "--prompts", "2", "--max-new-tokens", "8"]
    arguments += ["--temperature", "1", "--decoder", "reference", "--format", "html"]
    main([*arguments, "--out", str(tmp_path)])
    assert wealth.TITLE in (tmp_path / "report.html").read_text()
    found = record.read(tmp_path / "record.jsonl")
    assert wealth.TITLE in text_of("html", [render(found)])


def test_greedy_runs_and_older_records_have_none() -> None:
    assert wealth.charts([], ["a"]) == []
    assert all(chart.title != wealth.TITLE for chart in render(made([row()])).charts)
    bare = verdict("reference", [row(error="boom")])  # nothing could be judged
    assert wealth.charts([gate.as_row("reference", _settings(), 0.1, bare)], ["reference"]) == []
