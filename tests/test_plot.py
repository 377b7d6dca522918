"""Speedup by task as an image of its own, and the one that the README shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.bench.summary import evidence_of, summarise
from harness.record import Record, Writer, read
from harness.report.__main__ import main
from harness.report.plot import described, svg_text
from harness.report.render import render
from harness.report.svg import NAMESPACE
from tests.records import ROOT, header, made
from tests.timed_rows import row

SAMPLE = ROOT / "reports" / "smollm2-135m"


def drawn(record: Record) -> str:
    return svg_text([render(record)])


def description(svg: str) -> str:
    return ElementTree.fromstring(svg.encode()).findtext(f"{{{NAMESPACE}}}desc") or ""


def test_it_needs_no_page_and_is_the_same_each_time() -> None:
    rows = [row(prompt=f"p{i}", seconds=1 + i / 4) for i in range(3)]
    record = made([*rows, row("b <&>", tokens=[9, 9, 9, 9])], decoders=["a", "b <&>"])
    svg = drawn(record)
    assert svg == drawn(record)
    assert "var(" not in svg
    assert "currentColor" not in svg
    assert not re.search(r"#0[1-5]0", svg)  # no stand-in of a colour is left
    root = ElementTree.fromstring(svg.encode())
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert "chat, a: 1.622 [" in description(svg)
    assert "chat, b <&>: 2.000, not lossless" in description(svg)


def test_the_image_of_the_readme_is_that_of_the_committed_record() -> None:
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", (ROOT / "README.md").read_text())
    assert shown == ["reports/smollm2-135m/speedup.svg"]
    committed, record = (ROOT / shown[0]).read_text(), read(SAMPLE / "record.jsonl")
    assert description(committed) == description(drawn(record))
    evidence = evidence_of(record.verdicts)
    summaries = summarise(record.generations, record.header.decoders, (), evidence)
    assert description(committed) == described(summaries)


def test_the_command_writes_and_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.jsonl"
    with Writer(path, header(decoders=["a"])) as writer:
        writer.add(row())
    arguments = ["--from", str(path), "--format", "svg"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert main(arguments) == 0
    assert capsys.readouterr().out == (tmp_path / "speedup.svg").read_text()


def test_a_record_without_times_says_so() -> None:
    svg = drawn(made([row(error="boom")]))
    assert description(svg) == "Nothing was timed."
    assert ">Nothing was timed.<" in svg
