"""The figure of docs/statistics.md: what it shows is true, and it is the same every time."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from harness.stats import figure
from harness.stats.gallery import everything
from harness.stats.simulated import one_token

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", figure.LABELS)
def test_faults_cross_the_line(name: str) -> None:
    """Within a few times the bound; ``crossed_at`` is where the path first is above."""
    (fault,) = [f for f in everything() if f.name == name]
    path, process = figure.wealth(fault, 0)
    above = [tokens for tokens, log10 in path if log10 >= -math.log10(figure.ALPHA)]
    assert process.crossed_at == above[0]
    assert above[0] < 5 * -math.log(figure.ALPHA) / fault.information
    assert path[-1][1] >= figure.HIGHEST


@pytest.mark.parametrize("seed", range(2))
def test_a_right_decoder_does_not(seed: int) -> None:
    path, process = figure.wealth(one_token("right", lambda at: at.p), seed)
    assert path[0] == (1, 0.0)
    assert process.crossed_at is None
    assert path[-1][0] >= figure.MOST


def test_the_same_file_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figure, "MOST", 400)
    one, other, another = (tmp_path / f"{name}.svg" for name in ("one", "other", "another"))
    for out, seed in ((one, 0), (other, 0), (another, 1)):
        assert figure.main(["--out", str(out), "--seed", str(seed)]) == 0
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes() != another.read_bytes()
    assert not re.search(rb"<dc:date>|/tmp|/home", one.read_bytes())
    said = capsys.readouterr().out
    assert said.count("accept all: crosses 1/alpha after ") == 3
    assert said.count("over-accept 1.1: does not cross 1/alpha") == 3


@pytest.mark.parametrize(
    "arguments", [["--seed", "-1"], ["--out", "no/such/directory/wealth.svg"], ["--out", "."]]
)
def test_bad_input_is_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(figure, "MOST", 20)
    monkeypatch.chdir(tmp_path)
    assert figure.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_the_figure_is_committed_and_shown() -> None:
    svg = (ROOT / "docs" / "wealth.svg").read_text()
    assert figure.COMMAND in svg
    assert "](wealth.svg)" in (ROOT / "docs" / "statistics.md").read_text()
