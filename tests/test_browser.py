"""The pages in a browser: headless Chromium, driven by scripts that are added to copies of them."""

from __future__ import annotations

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.report import page
from harness.report.standings import standings
from tests.records import made
from tests.test_conformance import MIXED, found
from tests.test_conformance import made as conformance_record
from tests.test_report_page import differing, hostile, measured, page_of

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on the PATH: apt-get install chromium"
)
DARK = "--blink-settings=preferredColorScheme=0"
PAGES = ("report", "several", "hostile", "conformance")

# Sorting is asked for as a reader does it: a click on the button in a table's head.
SORTING = """
function orders(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const body = table.tBodies[0];
  const button = head.querySelector("button");
  button.focus();
  const reached = document.activeElement === button && button.tabIndex === 0;
  const read = () => [head.getAttribute("aria-sort"),
    [...body.rows].map((row) => row.cells[column].textContent.trim())];
  const seen = [read()];
  for (let click = 0; click < 3; click++) { button.click(); seen.push(read()); }
  const others = [...table.tHead.rows[0].cells].map((cell) => cell.getAttribute("aria-sort"));
  return {reached, seen, others};
}
"""
# Of text and of what it stands on, as WCAG defines contrast.
CONTRAST = """
function luminance(colour) {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const linear = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function contrast(one, other) {
  const [dim, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dim + 0.05);
}
function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
}
function worst(selector, property) {
  const all = [...document.querySelectorAll(selector)];
  return Math.min(...all.map((e) => contrast(getComputedStyle(e)[property], ground(e))));
}
"""


@functools.cache
def text_of(name: str) -> str:
    if name == "conformance":
        rows = [*MIXED, found("FAIL", decoder="b"), found("PASS", decoder="c")]
        return page.html(standings([conformance_record(*rows, decoders=["a", "b", "c"])]))
    if name == "hostile":
        return page_of(hostile())
    return page_of(measured(), measured()) if name == "several" else page_of(measured())


def browse(path: Path, *flags: str) -> tuple[str, list[str]]:
    """The document after its scripts, and what it said to the console."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--v=0", f"--user-data-dir={path.parent / 'profile'}", *flags, "--dump-dom"]
    done = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def written(directory: Path, text: str) -> Path:
    path = directory / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


def unguarded(text: str) -> str:
    """A copy that lets other scripts run."""
    changed, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert count == 1
    return changed


def asked(directory: Path, text: str, script: str, *flags: str) -> Any:
    """What a script returns that runs at the end of a copy of the page."""
    wrapped = (
        "<script>addEventListener('load', () => { const answer = (() => {"
        f"{script}"
        "})(); const pre = document.createElement('pre'); pre.id = 'answer';"
        "pre.textContent = JSON.stringify(answer); document.body.append(pre); });</script></body>"
    )
    copy = unguarded(text).replace("</body>", wrapped)
    document, console = browse(written(directory, copy), *flags)
    assert console == []
    [answer] = re.findall(r'<pre id="answer">(.*?)</pre>', document, re.DOTALL)
    return json.loads(html.unescape(answer))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_without_a_word_of_complaint(name: str, tmp_path: Path) -> None:
    document, console = browse(written(tmp_path, text_of(name)))
    assert console == []
    assert document.count("<table") == text_of(name).count("<table") >= 1
    heads = "".join(re.findall(r"<thead>.*?</thead>", document, re.DOTALL))
    sorting = re.findall(r'<th[^>]* aria-sort="none"><button type="button">', heads)
    assert len(sorting) == heads.count("<th ") > 0, "the page's own script has run"


def test_complaints_would_be_seen(tmp_path: Path) -> None:
    for script in ("console.error('oh')", "nothing()"):
        copy = unguarded(text_of("report")).replace("</body>", f"<script>{script}</script></body>")
        assert len(browse(written(tmp_path, copy))[1]) == 1
    foreign = text_of("report").replace("</body>", "<script>alert(1)</script></body>")
    _, console = browse(written(tmp_path, foreign))
    assert len(console) == 1
    assert "Content Security Policy" in console[0]


def test_a_click_sorts_up_down_and_back(tmp_path: Path) -> None:
    script = SORTING + "return orders(document.querySelector('table'), 3);"
    got = asked(tmp_path, text_of("report"), script)
    (none, start), (up, rising), (down, falling), (again, end) = got["seen"]
    assert got["reached"]
    assert [none, up, down, again] == ["none", "ascending", "descending", "none"]
    assert start == end != rising
    figures = [text for text in start if "lossl" not in text and "lossy" not in text]
    struck = [text for text in start if text not in figures]
    assert len(struck) == 6
    ordered = sorted(figures, key=lambda text: float(text.split("x")[0]))
    assert rising == [*ordered, *struck], "struck figures have no place in the order"
    assert [text.split("x")[0] for text in falling[: len(figures)]] == [
        text.split("x")[0] for text in reversed(ordered)
    ]
    assert falling[len(figures) :] == struck


def test_numbers_shares_and_words_sort_as_such(tmp_path: Path) -> None:
    cells = {
        "number": ["9%", "-", "10%", "-3%"],
        "share": ["3/16", "1/4", "0/4", "-"],
        "word": ["b10", "b9", "a", "-"],
        "mixed": ["2.0 / 2.1", "10", "1 (baseline)", "1.5x [1, 2]"],
        "date": ["2026-11-30", "2025-01-01", "2026-02-03", "2024-12-31"],
    }
    rows = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>"
        for line in zip(*cells.values(), strict=True)
    )
    table = f'<table class="sortable"><thead><tr>{"<th>x</th>" * 5}</tr></thead>{rows}</table>'
    copy = text_of("report").replace("<h1>", f"{table}<h1>", 1)
    script = "return [0, 1, 2, 3, 4].map((c) => orders(document.querySelector('table'), c));"
    got = asked(tmp_path, copy, SORTING + script)
    assert [of["seen"][1][1] for of in got] == [
        ["-3%", "9%", "10%", "-"],
        ["0/4", "3/16", "1/4", "-"],
        ["a", "b9", "b10", "-"],
        ["1 (baseline)", "1.5x [1, 2]", "2.0 / 2.1", "10"],
        ["2024-12-31", "2025-01-01", "2026-02-03", "2026-11-30"],
    ]


def test_only_one_head_says_that_it_sorts(tmp_path: Path) -> None:
    script = (
        "const heads = document.querySelector('table').tHead.rows[0].cells;"
        "for (const column of [0, 3, 1]) heads[column].querySelector('button').click();"
        "return [...heads].map((head) => head.getAttribute('aria-sort'));"
    )
    said = asked(tmp_path, text_of("report"), script)
    assert said == ["none", "ascending", *["none"] * (len(said) - 2)]


def test_suites_sort_by_the_worst_verdict(tmp_path: Path) -> None:
    script = SORTING + "return orders(document.querySelector('table'), 1).seen;"
    (_, start), _, (_, falling), _ = asked(tmp_path, text_of("conformance"), script)
    assert start == ["2 1x", "1F", "1"]
    assert falling == ["1F", "2 1x", "1"]


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """An address on this machine, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_address[1]}", paths
    listening.shutdown()


def test_no_request_leaves_the_page(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    address, paths = server
    for name in PAGES:
        script = "return performance.getEntriesByType('resource').map((entry) => entry.name);"
        assert asked(tmp_path, text_of(name), script) == []
    smuggled = f'<img src="{address}/image"><iframe src="{address}/frame"></iframe></body>'
    guarded = text_of("report").replace("</body>", smuggled)
    browse(written(tmp_path, guarded))
    assert paths == [], "what gets into the page cannot fetch anything either"
    browse(written(tmp_path, unguarded(guarded)))
    assert set(paths) >= {"/image", "/frame"}, "the server would have seen it"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_in_the_light_and_in_the_dark(
    name: str, dark: bool, tmp_path: Path
) -> None:
    script = """
    for (const part of document.querySelectorAll("details")) part.open = true;
    return {
      dark: matchMedia("(prefers-color-scheme: dark)").matches,
      ground: luminance(ground(document.body)),
      text: worst("p, dd, li, td, th, button, small, figcaption, s, code, mark, .mark", "color"),
      drawn: worst("svg text", "fill"),
    };"""
    got = asked(tmp_path, text_of(name), CONTRAST + script, *([DARK] if dark else []))
    assert got["dark"] == dark
    assert got["ground"] < 0.05 if dark else got["ground"] > 0.9
    assert got["text"] >= 4.5
    if name != "conformance":
        assert got["drawn"] >= 4.5


@pytest.mark.parametrize("name", PAGES)
def test_on_a_telephone_only_tables_are_wider_than_the_screen(name: str, tmp_path: Path) -> None:
    frame = f'<iframe id="f" style="width: 390px" srcdoc="{html.escape(unguarded(text_of(name)))}">'
    outer = f'<meta http-equiv="Content-Security-Policy" content="">{frame}</iframe></body>'
    script = """
    const inside = document.getElementById("f").contentDocument;
    const boxes = [...inside.querySelectorAll(".wide")];
    return {
      page: inside.documentElement.scrollWidth,
      screen: inside.documentElement.clientWidth,
      scrolling: boxes.filter((box) => box.scrollWidth > box.clientWidth).length,
      reached: boxes.every((box) => box.tabIndex === 0),
      text: Math.min(...[...inside.querySelectorAll("svg text")].map(
        (text) => text.getBoundingClientRect().height)),
    };"""
    got = asked(tmp_path, outer, script)
    assert got["page"] <= got["screen"] <= 390
    assert got["scrolling"] >= (name != "conformance")
    assert got["reached"]
    if name != "conformance":
        assert got["text"] >= 9, "pixels from ascent to descent"


def test_paper_shows_what_was_folded(tmp_path: Path) -> None:
    many = page_of(made([differing(prompt=f"p{number}") for number in range(20)]))
    assert many.count("<details") == 1
    script = """
    const state = () => document.querySelector("details").open;
    const seen = [state()];
    for (const name of ["beforeprint", "afterprint"]) {
      dispatchEvent(new Event(name));
      seen.push(state());
    }
    return seen;"""
    assert asked(tmp_path, many, script) == [False, True, False]
