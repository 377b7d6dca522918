"""The figures of a report: what its tables say, drawn."""

from __future__ import annotations

import re

import pytest
from matplotlib.figure import Figure

from harness.bench.costs import costs
from harness.bench.summary import summarise
from harness.record import Record
from harness.report import svg
from harness.report.charts import HOLLOW
from harness.report.render import render
from tests.records import made
from tests.test_costs import timed
from tests.test_report_page import DECODERS, drawings, measured, page_of
from tests.timed_rows import row


def test_figures_take_the_colours_and_the_font_of_the_page() -> None:
    found = drawings(page_of(measured()))
    assert len(found) == 4
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
    assert [HOLLOW in caption for caption in captions] == [True, False, True, True]
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
