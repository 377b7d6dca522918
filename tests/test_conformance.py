"""``python -m harness.report --conformance``: the table of decoders and suites, in every format."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

import pytest

from harness import expectations, publish
from harness.adapters import BUILT_IN
from harness.command_line import BadInput
from harness.record import Record, VerdictRow, Writer, read
from harness.report import formats, page
from harness.report.__main__ import main
from harness.report.arguments import THIRD_PARTY
from harness.report.options import parse
from harness.report.standings import (
    SUITES,
    compact,
    counts,
    finding,
    item_name,
    outcome,
    section,
    shortened,
    standings,
    words,
)
from harness.third_party import decoders
from harness.verdict import Status, Verdict
from tests.records import header

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "<script>alert(1)</script> | `x` \"'&"


def found(
    status: str, suite: str = "greedy", known: str = "", message: str = "because", **more: Any
) -> VerdictRow:
    return VerdictRow(
        decoder=more.pop("decoder", "a"),
        item=f"suites/test_{suite}.py::test_{more.pop('name', 'equal')}[tiny]",
        suite=suite,
        seconds=0.1,
        expected_failure=known,
        decoder_versions=more.pop("versions", {"engine": "1.2"}),
        verdict=Verdict(check=suite, status=Status[status], message=message, **more),
    )


def made(*rows: VerdictRow, **changes: Any) -> Record:
    problems = changes.pop("problems", [])
    pair = changes.pop("pair", header().pair.__class__("tiny pairs", "", "", "cpu", "float32"))
    decoders = changes.pop("decoders", ["a"])
    options = changes.pop("options", {"profile": "ci"})
    head = header(decoders=decoders, pair=pair, options=options, **changes)
    return Record(head, list(rows), [], problems)


MIXED = (
    found("PASS"),
    found("PASS", name="ties"),
    found("FAIL", known="loses the last token", name="offsets", likely_fault="cut off"),
    found("UNSUPPORTED", "logprobs"),
    found("ERROR", "stopping"),
    found("INCONCLUSIVE", "distribution"),
)


def write(path: Path, record: Record) -> Path:
    with Writer(path, record.header) as writer:
        for row in record.verdicts:
            writer.add(row)
    return path


# Counting


def test_a_known_failure_is_told_apart_from_others() -> None:
    assert outcome(found("FAIL")) == "FAIL"
    assert outcome(found("FAIL", known="see there")) == "xfail"
    assert outcome(found("ERROR", known="see there")) == "xfail"
    assert outcome(found("UNSUPPORTED", known="see there")) == "UNSUPPORTED"


@pytest.mark.parametrize(
    ("statuses", "cell", "said"),
    [
        (["PASS", "PASS"], "2", "2 PASS"),
        (["PASS", "FAIL", "FAIL"], "1 2F", "1 PASS, 2 FAIL"),
        (["ERROR"], "1E", "1 ERROR"),
        (["UNSUPPORTED", "UNSUPPORTED"], "-", "2 UNSUPPORTED"),
        (["UNSUPPORTED", "PASS"], "1 1u", "1 PASS, 1 UNSUPPORTED"),
        (["INCONCLUSIVE", "PASS", "FAIL"], "1 1F 1?", "1 PASS, 1 FAIL, 1 INCONCLUSIVE"),
        ([], "-", "nothing ran"),
    ],
)
def test_cells(statuses: list[str], cell: str, said: str) -> None:
    rows = [found(status) for status in statuses]
    assert (compact(rows), words(rows)) == (cell, said)


def test_the_worst_finding_is_a_failure_of_the_output_in_a_persons_words() -> None:
    [standing] = standings([made(*MIXED)])
    assert finding(standing.worst) == "greedy::offsets[tiny]: loses the last token"
    later = found("FAIL", "metrics", message="two calls", likely_fault="counts twice")
    [standing] = standings([made(*MIXED, later)])
    assert finding(standing.worst) == "metrics::equal[tiny]: two calls (likely fault: counts twice)"
    [standing] = standings([made(found("PASS"), found("UNSUPPORTED"))])
    assert finding(standing.worst) == "none"


def test_suites_come_in_their_order_and_unknown_ones_last() -> None:
    names = ("zebra", "metrics", "smoke", "greedy", "apes")
    [standing] = standings([made(*(found("PASS", name) for name in names))])
    assert list(standing.suites) == ["smoke", "greedy", "metrics", "apes", "zebra"]


def test_the_order_knows_every_suite() -> None:
    there = {path.stem.removeprefix("test_") for path in (ROOT / "suites").glob("test_*.py")}
    assert there == set(SUITES)


def test_names_tell_pair_and_options_apart() -> None:
    other = header().pair.__class__("smollm2-135m", "", "", "cpu", "float32")
    [standing] = standings(
        [made(found("PASS"), pair=other, options={"profile": "ci", "batch": "2"})]
    )
    assert standing.name == "a on smollm2-135m batch=2"
    assert standing.profile == "ci"


def test_versions_are_the_decoders_else_the_harnesss() -> None:
    rows = (found("PASS"), found("PASS", versions={"kernel": "7"}))
    [standing] = standings([made(*rows)])
    assert standing.versions == {"engine": "1.2", "kernel": "7"}
    [standing] = standings(
        [made(found("PASS", versions={}), versions={"transformers": "5", "torch": "2"})]
    )
    assert standing.versions == {"transformers": "5", "torch": "2"}
    [standing] = standings([made(found("PASS", versions={}), versions={"python": "3.12"})])
    assert standing.versions == {}


def test_benchmarks_have_no_place_in_it() -> None:
    [standing] = standings([made(found("PASS"), found("UNSUPPORTED", "benchmark"))])
    assert list(standing.suites) == ["greedy"]


def test_items_are_named_without_what_all_of_them_share() -> None:
    assert item_name("suites/test_greedy.py::test_ties[tiny]") == "greedy::ties[tiny]"
    assert item_name("../x/suites/test_smoke.py::test_wired[a::b]") == "smoke::wired[a::b]"


def test_long_texts_are_shortened_between_words() -> None:
    assert shortened("one two\nthree", 100) == "one two three"
    assert shortened("one two three four", 13) == "one two ..."


# Formats


def test_terminal_and_markdown_have_both_tables() -> None:
    document = [
        section(standings([made(*MIXED), made(found("PASS", decoder="b"), decoders=["b"])]))
    ]
    text = formats.terminal(document)
    assert re.search(
        r"^a +ci +2 PASS, 1 xfail, 1 ERROR, 1 INCONCLUSIVE, 1 UNSUPPORTED ", text, re.M
    )
    assert re.search(r"^decoder +greedy +distribution +stopping +logprobs$", text, re.M)
    assert re.search(r"^a +2 1x +1\? +1E +-$", text, re.M)
    assert re.search(r"^b +1 +- +- +-$", text, re.M)
    assert "? INCONCLUSIVE" in text
    markdown = formats.markdown(document)
    assert re.search(r"^\| a +\| 2 1x +\| 1\? +\| 1E +\| - +\|$", markdown, re.M)
    assert "```sh\npython -m harness.report\n```" in markdown


def test_a_record_that_was_cut_short_says_so() -> None:
    problem = "no footer: the run did not come to its end"
    found_ = standings([made(found("PASS"), problems=[problem])])
    text = formats.terminal([section(found_)])
    assert "1 PASS (cut short)" in text
    assert problem in text
    assert problem in page.html(found_)


class Outline(html.parser.HTMLParser):
    """What a browser would make of the page: tags, ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found[name] or "" for name in ("href", "src") if name in found]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_is_whole_needs_no_other_and_escapes_what_it_shows() -> None:
    hostile = found(
        "FAIL",
        known=HOSTILE,
        message=HOSTILE,
        name=HOSTILE.replace("/", ""),
        likely_fault=HOSTILE,
        repro=HOSTILE,
        versions={HOSTILE: HOSTILE},
        decoder=HOSTILE,
    )
    record = made(hostile, *MIXED, decoders=[HOSTILE, "a"], command=HOSTILE, problems=[HOSTILE])
    outline = Outline(page.html(standings([record])))
    assert outline.open == []
    assert outline.tags.count("script") == 1, "the page's own"
    assert outline.words.count("<script>alert(1)</script>") >= 6
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.links
    for link in outline.links:
        assert link.startswith("#"), "the page needs no other file"
        assert link[1:] in outline.ids


def test_the_page_says_all_of_a_finding() -> None:
    row = found("FAIL", likely_fault="cut off", repro="print(1)", message="token 3 is 4")
    text = Outline(page.html(standings([made(row, found("PASS", ruled_out="0.01 in TV"))]))).words
    for part in ("token 3 is 4", "cut off", "print(1)", "0.01 in TV", "engine 1.2"):
        assert part in text


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([], "none"),
        ([found("UNSUPPORTED")], "UNSUPPORTED"),
        ([found("PASS"), found("UNSUPPORTED")], "PASS"),
        ([found("PASS"), found("ERROR"), found("FAIL", known="x")], "xfail"),
        ([found("PASS"), found("ERROR"), found("FAIL")], "FAIL"),
    ],
)
def test_colours(rows: list[VerdictRow], kind: str) -> None:
    assert page.worst_of(rows) == kind


def test_cells_sort_by_the_worst_in_them() -> None:
    cells = [
        [found("FAIL")],
        [found("FAIL", known="x")] * 2,
        [found("FAIL", known="x"), *[found("PASS")] * 9],
        [found("PASS")] * 2,
        [found("PASS"), found("UNSUPPORTED")],
    ]
    ranks = [int(page.severity(rows)) for rows in cells]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == len(ranks)
    assert page.severity([]) == ""


def test_hovering_names_the_worst_items_first() -> None:
    rows = [found("PASS", name=f"n{i}") for i in range(20)] + [found("FAIL", name="bad")]
    lines = page.hover(rows).splitlines()
    assert lines[0] == "FAIL  greedy::bad[tiny]"
    assert lines[-1] == "9 more"


# The command


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.jsonl", made(*MIXED[:3]))
    second = write(tmp_path / "b.jsonl", made(found("PASS", decoder="b"), decoders=["b"]))
    assert main(["--conformance", str(first), str(second)]) == 0
    assert "By suite" in capsys.readouterr().out
    written = tmp_path / "out"
    arguments = ["--conformance", str(first), "--format", "html,markdown", "--out", str(written)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"written: {written / 'conformance.html'}\n" in captured.err
    assert main(["--conformance", str(first), "--format", "html"]) == 0
    assert capsys.readouterr().out == (written / "conformance.html").read_text()
    assert (written / "conformance.md").read_text().startswith("# Conformance\n")


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([found("PASS"), found("FAIL", known="x")], 0),
        ([found("PASS"), found("FAIL")], 1),
        ([found("PASS"), found("ERROR")], 3),
        ([found("UNSUPPORTED")], 3),
    ],
)
def test_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[VerdictRow], status: int
) -> None:
    assert main(["--conformance", str(write(tmp_path / "a.jsonl", made(*rows)))]) == status


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--conformance", "x", "--from", "y"], "to --from or to --conformance, not to both"),
        (["--conformance", "x", "--seed", "3"], "--seed has no effect with --conformance"),
        (["--conformance", "--format", "pdf"], "known are terminal, markdown, html"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse(arguments)


def test_no_records_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--conformance"]) == 2
    assert capsys.readouterr().err.startswith(f"error: no records in {THIRD_PARTY}: name them")


def test_findings_are_of_decoders_that_there_are_and_links_lead_to_them() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    titles = re.findall(r"^## (.*)$", page, re.M)
    anchors = {title.lower().replace(" ", "-").replace(".", "") for title in titles}
    links = re.findall(r"\(#([^)]*)\)", page)
    assert links
    assert set(links) <= anchors
    for line in re.findall(r"decoders? (`.*?)(?:[.:]|\n\n)", page, re.DOTALL):
        for name in re.findall(r"`([^`]*)`", line):
            assert name in decoders(), name


def test_every_finding_names_items_that_there_are() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    engines = page[page.index("\n## llama.cpp") : page.index("\n## Conventions")]
    for subject in re.split(r"^## ", engines, flags=re.M)[1:]:
        for told in re.split(r"^(?=\*\*)", subject, flags=re.M)[1:] or [subject]:
            assert "Items:" in told, told[:80]
    for file, test in re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?", page):
        assert f"def {test}" in (ROOT / "suites" / file).read_text(), (file, test)


def test_tables_are_those_of_the_committed_records() -> None:
    """After a new record: ``python -m harness.publish``."""
    for path, text in publish.files(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, path


def test_committed_records_are_whole_and_nothing_in_them_is_unexplained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    if not list(THIRD_PARTY.glob("*.jsonl")):
        pytest.skip("no records are committed")
    main(["--conformance"])
    printed = capsys.readouterr().out
    assert "(cut short)" not in printed
    for path in THIRD_PARTY.glob("*.jsonl"):
        for standing in standings([read(path)]):
            for row in standing.rows:
                assert outcome(row) not in ("FAIL", "ERROR"), f"{path.stem}: {row.item}"


def test_every_family_has_a_record_and_nothing_in_it_is_wrong() -> None:
    """``pytest suites/ --profile ci --decoder NAME --results reports/families/NAME.jsonl``."""
    records = [read(path) for path in (ROOT / publish.FAMILIES).glob("*.jsonl")]
    found = standings(records)
    families = {name for name in BUILT_IN if name.startswith("reference")}
    # Slow: one request at a time (tests/test_right_decoders.py has its own way with it); lossy.
    families -= {"reference-page", "reference-typical"}
    assert {standing.name for standing in found} == families
    for standing in found:
        assert (standing.profile, standing.problems) == ("ci", [])
        assert set(counts(standing.rows)) <= {"PASS", "UNSUPPORTED"}, standing.name


def test_what_was_explained_since_the_run_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "KNOWN", tmp_path)
    (tmp_path / "a.txt").write_text("test_equal*  # found since\n")
    rows = [found("FAIL"), found("PASS"), found("INCONCLUSIVE"), found("ERROR", known="then")]
    [standing] = standings([made(*rows)])
    assert [row.expected_failure for row in standing.rows] == ["found since", "", "", "then"]
    [other] = standings([made(found("FAIL", decoder="../a"), decoders=["../a"])])
    assert outcome(other.rows[0]) == "FAIL"


def test_publishing_replaces_the_table_and_nothing_else(tmp_path: Path) -> None:
    before, after = f"above\n\n{publish.BEGIN}", f"{publish.END}\nbelow\n"
    (tmp_path / "README.md").write_text(f"{before}old table\n{after}")
    (tmp_path / THIRD_PARTY).mkdir(parents=True)
    assert (
        publish.files(tmp_path)[tmp_path / "README.md"] == f"{before}\nNo records yet.\n\n{after}"
    )
    write(tmp_path / THIRD_PARTY / "a.jsonl", made(*MIXED))
    texts = publish.files(tmp_path)
    assert texts[tmp_path / "README.md"].startswith(f"{before}\n| decoder ")
    assert texts[tmp_path / "README.md"].endswith(f"2026-01-01 |\n\n{after}")
    (tmp_path / "README.md").write_text(texts[tmp_path / "README.md"])
    assert publish.files(tmp_path) == texts
    assert set(texts) == {
        tmp_path / "README.md",
        *(
            tmp_path / directory / f"conformance.{kind}"
            for directory in (publish.THIRD_PARTY, publish.FAMILIES)
            for kind in ("md", "html")
        ),
    }
