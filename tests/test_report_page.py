"""The report as a page: what the other formats say, figures, differences; all of it escaped."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from harness.bench.costs import costs
from harness.bench.summary import summarise
from harness.record import GenerationRow, Record, Writer
from harness.report import formats, report_page, svg
from harness.report.__main__ import main
from harness.report.charts import HOLLOW
from harness.report.differences import MOST, SHOWN, common_prefix, differences
from harness.report.document import Struck, Table
from harness.report.render import render
from tests.test_bench import row
from tests.test_conformance import HOSTILE, Outline
from tests.test_costs import timed
from tests.test_report import QUICK, made

DECODERS = ["a", "lossy", "transformers-x", "wrong"]
TASKS = ("chat", "code")


def measured(**changes: Any) -> Record:
    """Two tasks of two prompts by four decoders: one is wrong, one lossy, one silent on costs."""
    rows: list[GenerationRow] = []
    for number, decoder in enumerate(DECODERS):
        for task in TASKS:
            for prompt in range(2):
                given: dict[str, Any] = {
                    "decoder": decoder,
                    "task": task,
                    "prompt": f"{task}-{prompt}",
                    "seconds": 1.1 + 0.1 * number + 0.05 * prompt,
                    "parts": {"prompt": 0.2, "draft": 0.2 + 0.1 * prompt, "verify": 0.5},
                }
                if decoder == "transformers-x":
                    given |= {"drafted": None, "accepted": None, "parts": {}, "plain_parts": {}}
                if decoder == "wrong":
                    given |= {"tokens": (1, 2, 9, 4), "fault": f"token 2 is 9, gap 0.{prompt}"}
                rows.append(timed(**given))
    options = {"temperature": 0.0, "draft_tokens": 3, "declared_lossy": ["lossy"]}
    return made(rows, decoders=DECODERS, options=options, **changes)


def page_of(*records: Record) -> str:
    return report_page.html([render(record) for record in records])


class Cells(html.parser.HTMLParser):
    """Tables of a page, as rows of (text, attributes of the cell)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, dict[str, str | None]]]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(("", dict(attrs)))
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            text, attributes = self.tables[-1][-1].pop()
            self.tables[-1][-1].append((text + data, attributes))


def texts(text: str) -> list[list[list[str]]]:
    return [[[cell for cell, _ in line] for line in table] for table in Cells(text).tables]


def of_markdown(text: str) -> list[list[list[str]]]:
    """Tables of a Markdown report, without what marks and escapes."""
    tables: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[:1] + lines[2:]]
            plain = [[re.sub(r"~~|\\(?=\W|_)", "", cell).strip() for cell in row] for row in cells]
            tables.append(plain)
    return tables


def drawings(text: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


# Tables, notes, facts


def test_the_numbers_are_those_of_the_markdown_report() -> None:
    record = measured()
    found = texts(page_of(record))
    assert found == of_markdown(formats.markdown([render(record)]))
    assert [len(table) for table in found] == [13, 5, 10]
    assert "1.78x [1.74, 1.82]" in str(found)


def test_struck_figures_stay_struck_and_have_no_place_in_an_order() -> None:
    record = measured()
    tables: list[Table] = render(record).tables
    struck = [cell for t in tables for line in t.rows for cell in line if isinstance(cell, Struck)]
    text = page_of(record)
    assert len(struck) == 14
    assert re.findall(r"<s>(.*?)</s> <small>(.*?)</small>", text) == [
        (cell.text, cell.reason) for cell in struck
    ]
    cells = [cell for table in Cells(text).tables for line in table for cell in line]
    for said, attributes in cells:
        reasons = ("not lossless", "lossy by design")
        assert (attributes.get("data-sort") == "") == said.endswith(reasons), said


def test_verdicts_have_their_colours() -> None:
    text = page_of(measured())
    for kind, verdict in (("PASS", "PASS 2/2"), ("FAIL", "FAIL 0/2"), ("xfail", "LOSSY 2/2")):
        assert f'<span class="mark {kind}">{verdict}</span>' in text
    decoy = page_of(made([row("FAIL")], decoders=["FAIL"]))
    assert 'mark FAIL"' not in decoy, "a decoder of that name is no verdict"


def test_notes_and_facts_are_all_there() -> None:
    record = measured(command="python -m harness.report --seed 3", problems=["line 9 is torn"])
    section, words = render(record), Outline(page_of(record)).words
    lines = [line for notes in section.notes for line in notes.lines]
    values = [value for _, value in section.facts]
    assert lines
    assert "python -m harness.report --seed 3" in values
    for text in (*lines, *values, "line 9 is torn", "Linux, 2 cores, 1 threads", "python 3.12"):
        assert text in words


def test_several_records_are_several_sections_with_ids_of_their_own() -> None:
    outline = Outline(page_of(measured(), measured()))
    assert outline.links[:2] == ["#r1", "#r2"]
    assert {"r1", "r2"} <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.links) <= {f"#{name}" for name in outline.ids}


def test_an_empty_record_says_so() -> None:
    text = page_of(made())
    assert "nothing was measured" in text
    assert drawings(text) == []


# What comes from a record


LONG = f"{HOSTILE} {'x' * 300}"


def hostile() -> Record:
    rows = [
        row(LONG, LONG, task=LONG, tokens=(1, 9, 9, 9), fault=LONG),
        row(LONG, "p2", task="chat", error=LONG),
        timed(decoder=LONG, prompt="p3", near_tie=LONG, tokens=(1, 2, 3, 9)),
        timed(decoder=LONG, prompt="p4", finish_reason=LONG, identical=False),
    ]
    return made(
        rows,
        decoders=[LONG],
        command=LONG,
        versions={LONG: LONG},
        machine={"system": LONG},
        problems=[LONG],
    )


def test_all_that_a_record_says_is_escaped() -> None:
    text = page_of(hostile(), hostile())
    outline = Outline(text)
    assert outline.open == []
    assert outline.tags.count("script") == 1
    assert outline.words.count("<script>alert(1)</script>") >= 30
    assert text.count("<script>") == 1


def test_nothing_is_fetched_and_only_the_pages_own_script_runs() -> None:
    text = page_of(hostile())
    links = Outline(text).links + re.findall(r"url\((.*?)\)", text)
    assert all(link.startswith("#") for link in links)
    assert "@import" not in text
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "name",
    ["a$b$", r"$\frac{", "<b>&amp;\"'", "\x1b[31m\x00", "名前", "x" * 300, "two\nlines", "%s"],
)
def test_any_name_can_be_drawn(name: str) -> None:
    record = made([timed(decoder=name, task=name)], decoders=[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = drawings(page_of(record))
    assert len(found) == 3
    for drawing in found:
        shown = svg.shown(name)
        assert len(shown) <= svg.LONGEST
        assert shown in Outline(drawing).words


# Figures


def test_figures_take_the_colours_and_the_font_of_the_page() -> None:
    found = drawings(page_of(measured()))
    assert len(found) == 3
    for drawing in found:
        assert re.match(r'<svg [^>]*role="img" aria-labelledby="(r1-chart\d)-title"', drawing)
        assert re.search(r'<title id="r1-chart\d-title">\w[^<]{30,}</title>', drawing)
        assert not re.search(r"#[0-9a-f]{6}\b|font-family|<style|<!--|metadata", drawing)
        assert "currentColor" in drawing
        assert 'width="' not in drawing[: drawing.index(">")]
        assert len(drawing) < 60_000


def test_the_same_record_gives_the_same_page() -> None:
    assert page_of(measured()) == page_of(measured())


def plotted(record: Record) -> dict[str, Figure]:
    """The figures of a record by title, as matplotlib has them."""
    found = {}
    for chart in render(record).charts:
        draw = chart.draw.args[0]  # type: ignore[attr-defined]
        found[chart.title] = Figure()
        draw(found[chart.title])
    return found


def points(figure: Figure) -> list[tuple[float, float]]:
    lines = figure.axes[0].lines
    return [
        (line.get_xdata()[0], line.get_ydata()[0]) for line in lines if len(line.get_xdata()) == 1
    ]


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_speedups_are_drawn_as_the_table_has_them() -> None:
    record = measured()
    summaries = summarise(record.generations, DECODERS, ["lossy"])
    figure = plotted(record)["Speedup by task"]
    [axes] = figure.axes
    drawn = [s.speedup for s in summaries if s.speedup]
    assert len(drawn) == 12
    assert [x for x, _ in points(figure)] == [estimate.value for estimate in drawn]
    ends = [tuple(line.get_xdata()) for line in axes.lines[1:] if len(line.get_xdata()) == 2]
    assert ends == [(estimate.low, estimate.high) for estimate in drawn]
    assert list(axes.lines[0].get_xdata()) == [1, 1]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["chat", "code", "all"]
    assert labels(figure) == [
        "a",
        "lossy (lossy by design)",
        "transformers-x",
        "wrong (not lossless)",
    ]


def test_what_is_no_result_is_grey_hollow_and_says_why() -> None:
    record = measured()
    figure = plotted(record)["Speedup by task"]
    [axes] = figure.axes
    marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
    summaries = [s for s in summarise(record.generations, DECODERS, ["lossy"]) if s.speedup]
    for mark, summary in zip(marks, summaries, strict=True):
        grey = mark.get_color() == svg.QUIET and mark.get_markerfacecolor() == svg.GROUND
        assert grey == (summary.decoder in ("lossy", "wrong"))
    said = [text.get_text() for text in axes.texts]
    assert said == ["lossy by design", "not lossless"] * 3
    captions = [chart.caption for chart in render(record).charts]
    assert [HOLLOW in caption for caption in captions] == [True, False, True]
    good = made([timed(), timed(prompt="p2")])
    assert not any(HOLLOW in chart.caption for chart in render(good).charts)


def test_a_decoder_that_is_wrong_on_one_task_keeps_its_colour_on_the_other() -> None:
    rows = [timed(), timed(task="code", tokens=(1, 2, 3, 9), fault="far")]
    figure = plotted(made(rows, decoders=["a"]))["Speedup by task"]
    marks = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    assert [mark.get_color() for mark in marks] == [svg.SERIES[0], svg.QUIET, svg.QUIET]
    assert labels(figure) == ["a"]


def test_the_histogram_counts_the_rounds_of_each_decoder() -> None:
    rows = [
        row("a", drafted=[3, 3, 3], accepted=[3, 0, 0]),
        row("a", prompt="p2", drafted=[3], accepted=[1]),
        row("b", drafted=[40, 40], accepted=[0, 40]),
        row("c"),  # does not tell
        row("b", prompt="p3", drafted=[1], accepted=[1], error="cut off"),
    ]
    figure = plotted(made(rows, decoders=["a", "b", "c"]))["Accepted drafts of a round"]
    assert [axes.get_title() for axes in figure.axes] == ["a", "b (not lossless)"]
    heights = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    assert heights[0] == pytest.approx([0.5, 0.25, 0, 0.25] + [0] * 13)
    assert heights[1] == pytest.approx([0.5] + [0] * 15 + [0.5])
    assert figure.axes[1].get_xticklabels()[-1].get_text() == "16+"


def test_predicted_against_measured_are_the_costs_of_the_table() -> None:
    record = measured()
    found = [of for of in costs(record.generations, DECODERS) if of.task != "all"]
    figure = plotted(record)["Predicted and measured speedup"]
    assert len(found) == 6
    expected = [(of.ideal.value, of.ideal.value * of.share.value) for of in found]
    assert points(figure) == expected
    of_a = [s.speedup for s in summarise(record.generations, ["a"]) if s.task == "chat"]
    assert expected[0][1] == pytest.approx(of_a[0].value if of_a[0] else 0)
    (diagonal,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    wanted = ["a", "lossy (lossy by design)", "wrong (not lossless)", "chat", "code"]
    assert labels(figure) == wanted


def test_figures_without_data_are_left_out() -> None:
    assert [chart.title for chart in render(made([row()])).charts] == ["Speedup by task"]
    assert render(made([row(error="no memory")])).charts == []


def test_more_decoders_than_colours_look_different() -> None:
    names = [f"d{number}" for number in range(20)]
    found = plotted(made([timed(decoder=name) for name in names], decoders=names))
    marks = [line for line in found["Speedup by task"].axes[0].lines if len(line.get_xdata()) == 1]
    assert len({(mark.get_color(), mark.get_marker()) for mark in marks}) == 20


# Where outputs differ


def differing(**changes: Any) -> GenerationRow:
    given: dict[str, Any] = {
        "plain_tokens": range(100, 150),
        "tokens": [*range(100, 110), 7, *range(111, 150)],
        "plain_finish_reason": "length",
        "finish_reason": "length",
        "fault": "token 10 is 7 (logit gap 1.5)",
    }
    return row(**given | changes)


def test_a_difference_is_shown_from_where_it_begins() -> None:
    [found] = differences([differing(repeat=1), row(prompt="same")], ["a"])
    [one] = found.listed
    assert (one.kind, one.where, one.prefix) == ("FAIL", "chat, p1, repeat 2", 10)
    assert one.plain == [*map(str, range(110, 110 + SHOWN)), "..."]
    assert one.speculative == ["7", *map(str, range(111, 110 + SHOWN)), "..."]
    assert one.words == "token 10 is 7 (logit gap 1.5)"
    text = page_of(made([differing()]))
    assert "10 ids in common" in text
    assert "<mark>110</mark> 111 112" in text
    assert "<mark>7</mark> 111 112" in text
    assert text.count("<mark>") == 2


def test_the_end_of_an_output_is_part_of_it() -> None:
    short = differing(tokens=range(100, 110), finish_reason="eos", fault="stops early")
    [found] = differences([short, differing(tokens=range(100, 150), identical=False)], ["a"])
    assert found.listed[0].speculative == ["end (eos)"]
    assert found.listed[1].prefix == 50
    assert found.listed[1].plain == ["end (length)"]


@pytest.mark.parametrize(
    ("found", "lossy", "kind", "words"),
    [
        (differing(), False, "FAIL", "token 10 is 7 (logit gap 1.5)"),
        (differing(), True, "LOSSY", "token 10 is 7 (logit gap 1.5)"),
        (differing(fault="", near_tie="1e-6 apart"), False, "near tie", "1e-6 apart"),
        (differing(fault=""), False, "FAIL", "the outputs differ"),
        (differing(fault="", error="plain is off"), False, "ERROR", "plain is off"),
        (differing(identical=True), False, "FAIL", "token 10 is 7 (logit gap 1.5)"),
    ],
)
def test_the_record_has_the_word(found: GenerationRow, lossy: bool, kind: str, words: str) -> None:
    [of_a] = differences([found], ["a"], ["a"] if lossy else [])
    assert [(one.kind, one.words) for one in of_a.listed] == [(kind, words)]


def test_sampled_outputs_may_differ() -> None:
    assert differences([differing(identical=None, fault="")], ["a"]) == []


def test_of_very_many_the_first_are_shown_and_all_are_counted() -> None:
    rows = [differing(prompt=f"p{number}") for number in range(MOST + 5)]
    [found] = differences([*rows, differing(decoder="b")], ["a"])
    assert (found.total, len(found.listed)) == (MOST + 5, MOST)
    assert f"105 outputs not as plain decoding gives, the first {MOST} shown" in page_of(made(rows))


def test_common_prefixes() -> None:
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([1, 2, 3], [1, 5, 3]) == 1


# The command


def test_rendering_writes_or_prints_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = measured()
    path = tmp_path / "record.jsonl"
    with Writer(path, record.header) as writer:
        for found in record.generations:
            writer.add(found)
    assert main(["--from", str(path), "--format", "html", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"written: {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text() == page_of(record) + "\n"
    assert main(["--from", str(path), str(path), "--format", "html"]) == 1
    assert capsys.readouterr().out == page_of(record, record) + "\n"


def test_a_run_writes_the_page(tmp_path: Path) -> None:
    arguments = [*QUICK, "--decoder", "reference", "--prompts", "1", "--format", "html"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "PASS 1/1" in text
    assert len(drawings(text)) == 3
    assert not (tmp_path / "report.md").exists()


def test_a_long_record_gives_a_page_that_can_be_opened() -> None:
    rows: Sequence[GenerationRow] = [
        differing(decoder=decoder, task=task, prompt=f"p{number}", seconds=1 + number % 7 / 10)
        for number in range(1250)
        for task in ("chat", "code", "math", "creative")
        for decoder in DECODERS
    ]
    assert len(rows) == 20_000
    text = page_of(made(rows, decoders=DECODERS))
    assert "FAIL 0/5000" in text
    assert text.count("5000 outputs not as plain decoding gives") == 4
    assert len(text) < 1_000_000
