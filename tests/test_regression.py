"""Two runs compared: what is called a regression, what is refused, and what is only told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.bench.estimate import difference, mean, ratio_of_means
from harness.bench.regression import (
    FASTER,
    LOST,
    NO_RESULT,
    SLOWER,
    UNDECIDED,
    WITHIN,
    Change,
    compare_runs,
    contrast,
    incomparable,
)
from harness.command_line import BadInput
from harness.record import PairInfo, Record, Writer
from harness.report import formats, regression, report_page
from harness.report.__main__ import main
from harness.report.render import render
from tests.records import header, made, one_line, unwrapped
from tests.test_claims import suite
from tests.timed_rows import row

PAIR = PairInfo("tiny", "made from seed 1", "0123456789abcdef", "cpu", "float32")


def run(factor: float = 1.0, count: int = 12, noise: float = 0.01, **changes: Any) -> Record:
    """Speedups that vary a lot from prompt to prompt, times a factor that varies little."""
    generator = random.Random(count + int(100 * factor))
    rows = []
    for number in range(count):
        own = 1 + number / count
        speedup = own * factor * generator.lognormvariate(0, noise)
        rows.append(row(prompt=f"p{number}", plain_seconds=speedup, seconds=1.0))
    given: dict[str, Any] = {"decoders": ["a"], **changes}
    return made(given.pop("rows", rows), **given)


def wrong(record: Record) -> Record:
    rows = [row(prompt=r.prompt_id, tokens=(9, 9, 9, 9), fault="far") for r in record.generations]
    return made(rows, decoders=["a"])


def change(old: Record, new: Record, **more: Any) -> Change:
    [found] = compare_runs(old, new, **more)
    return found


# Intervals


def test_a_difference_of_means_resamples_both_sides() -> None:
    some, others = [1.0, 2.0, 3.0, 4.0] * 3, [0.0, 1.0, 2.0, 5.0] * 3
    both, one = difference(some, others), mean(some)
    assert both.value == pytest.approx(0.5)
    assert both.low is not None
    assert both.high is not None
    assert one.low is not None
    assert one.high is not None
    assert both.high - both.low > one.high - one.low
    assert difference(some, others, 0.99).low < both.low  # type: ignore[operator]


def test_the_expansion_of_a_difference_is_its_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(0)
    some = [generator.expovariate(1) for _ in range(500)]
    others = [generator.gauss(0, 1) for _ in range(700)]
    expanded = difference(some, others)
    monkeypatch.setattr("harness.bench.estimate.MANY", 10_000)
    drawn = difference(some, others)
    assert (expanded.low, expanded.high) == pytest.approx((drawn.low, drawn.high), abs=0.006)


def test_the_ratio_of_means_is_geometric() -> None:
    found = ratio_of_means([2.0, 8.0], [1.0, 4.0])
    assert found.value == pytest.approx(2)
    assert (found.low, found.high) != (None, None)


# Outcomes


def test_pairing_takes_out_what_makes_prompts_differ() -> None:
    old, new = run(), run(0.85)
    found = change(old, new)
    assert found.outcome == SLOWER
    assert found.contrast is not None
    assert (found.contrast.paired, found.contrast.prompts) == (True, 12)
    assert found.contrast.ratio.value == pytest.approx(0.85, abs=0.02)
    others = [row(prompt=f"q{r.prompt_id}", plain_seconds=r.plain_seconds, seconds=1.0)
              for r in new.generations]  # fmt: skip
    unpaired = change(old, run(rows=others))
    assert unpaired.contrast is not None
    assert not unpaired.contrast.paired
    assert unpaired.contrast.ratio.value == pytest.approx(found.contrast.ratio.value)
    assert unpaired.outcome == UNDECIDED


@pytest.mark.parametrize(
    ("factor", "noise", "outcome"),
    [(1.0, 0.01, WITHIN), (0.9, 0.01, SLOWER), (1.2, 0.01, FASTER), (0.93, 0.1, UNDECIDED)],
)
def test_outcomes(factor: float, noise: float, outcome: str) -> None:
    assert change(run(), run(factor, noise=noise)).outcome == outcome


def test_the_margin_is_what_may_be_lost() -> None:
    assert change(run(), run(0.9)).outcome == SLOWER
    assert change(run(), run(0.9), margin=0.2).outcome == WITHIN


def test_losslessness_lost_is_a_regression_however_fast() -> None:
    fast = wrong(run())
    assert change(run(), fast).outcome == LOST
    assert change(fast, run()).outcome == NO_RESULT
    crashed = [row(prompt=f"p{i}", error="out of memory") for i in range(12)]
    assert change(run(), run(rows=crashed)).outcome == LOST


def test_sampled_runs_have_the_verdict_of_their_evidence() -> None:
    def sampled(status: str) -> Record:
        rows = [row(prompt=f"p{i}", identical=None) for i in range(12)]
        found = suite(status, "bench.evidence")
        found = msgspec.structs.replace(found, item="bench.evidence[T=1]", suite="benchmark")
        return made(rows, [found], decoders=["a"])

    assert change(sampled("PASS"), sampled("PASS")).outcome == WITHIN
    assert change(sampled("PASS"), sampled("FAIL")).outcome == LOST


def test_a_single_prompt_decides_nothing() -> None:
    assert change(run(count=1), run(0.5, count=1)).outcome == UNDECIDED


def test_all_intervals_hold_together() -> None:
    """The more there are, the wider each is."""
    old, new = run(), run(0.94, noise=0.03)
    rows = [row("b", prompt=r.prompt_id, plain_seconds=r.plain_seconds) for r in old.generations]
    alone = change(old, new)
    both = [made([*r.generations, *rows], decoders=["a", "b"]) for r in (old, new)]
    beside = compare_runs(*both)[0]
    assert alone.contrast is not None
    assert beside.contrast is not None
    assert beside.contrast.ratio.high > alone.contrast.ratio.high  # type: ignore[operator]


def test_a_name_alone_does_not_make_a_prompt_the_same() -> None:
    prompts = {("chat", f"p{i}"): 1.0 + i for i in range(4)}
    found = contrast(prompts, prompts, set(prompts))
    assert found is not None
    assert found.paired
    half = contrast(prompts, prompts, set(list(prompts)[:2]))
    assert half is not None
    assert (half.paired, half.prompts) == (True, 2)
    none = contrast(prompts, prompts, set())
    assert none is not None
    assert not none.paired
    assert contrast(prompts, {}, set()) is None


# What can be compared


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pair": PairInfo("micro", "", "", "cpu", "float32")}, "the pair was tiny, and is micro"),
        ({"pair": PairInfo("tiny", "", "fedcba", "cpu", "float32")}, "the weights of tiny had"),
        ({"options": {"draft_tokens": 4, "temperature": 0.0}}, "K was 3, and is 4"),
        ({"options": {"draft_tokens": 3, "temperature": 0.5}}, "the temperature was 0.0"),
        ({"options": {"draft_choice": "mismatched"}}, "the draft was right, and is mismatched"),
    ],
)
def test_runs_of_other_things_are_refused(changes: dict[str, Any], words: str) -> None:
    assert words in incomparable(header(), header(**changes))
    with pytest.raises(BadInput, match="measure both with the same, then compare"):
        regression.section(run(), run(**changes), 0.05)


def test_what_differs_otherwise_is_told() -> None:
    changes: dict[str, Any] = {
        "machine": {"system": "Linux", "cores": "8", "threads": "1"},
        "versions": {"python": "3.13", "torch": "3"},
        "pair": PairInfo("tiny", "", "", "cuda", "bfloat16"),
        "options": {"profile": "full", "draft_tokens": 3, "temperature": 0.0},
    }
    lines = regression.unlike(header(), header(**changes))
    assert lines == [
        "dtype: float32, now bfloat16",
        "device: cpu, now cuda",
        "machine, cores: 2, now 8",
        "version, python: 3.12, now 3.13",
        "version, torch: not given, now 3",
        "option, profile: quick, now full",
    ]


def test_what_one_run_has_alone_is_told() -> None:
    code = [row(prompt=f"c{i}", task="code") for i in range(3)]
    new = made([*run().generations, *code, row("b")], decoders=["a", "b"])
    text = unwrapped(formats.terminal([regression.section(run(), new, 0.05)]))
    assert "decoders of the new run alone: b" in text
    assert "tasks of the new run alone: code" in text
    assert "12 paired" in text


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(BadInput, match="no decoder and task in common"):
        regression.section(run(), made([row("b")], decoders=["b"]), 0.05)


# The command


def written(path: Path, record: Record) -> str:
    with Writer(path, record.header) as writer:
        for found in record.generations:
            writer.add(found)
    return str(path)


@pytest.fixture
def old(tmp_path: Path) -> str:
    return written(tmp_path / "old.jsonl", run())


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1.2, 0), (0.8, 1)])
def test_a_regression_is_an_exit_status(
    factor: float, status: int, old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(tmp_path / "new.jsonl", run(factor))
    assert main(["--compare", old, "--from", new]) == status
    output = capsys.readouterr().out
    assert "New speedup over old speedup" in output
    assert ("Regressions" in output) == bool(status)
    assert "95%" in output


def test_the_margin_is_an_option(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(tmp_path / "new.jsonl", run(0.8))
    assert main(["--compare", old, "--from", new, "--regression", "0.3"]) == 0
    assert "wholly below 0.7" in capsys.readouterr().out


def test_lossless_no_more_is_an_exit_status(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(tmp_path / "new.jsonl", wrong(run()))
    assert main(["--compare", old, "--from", new]) == 1
    output = unwrapped(capsys.readouterr().out)
    assert "a, chat: lossless no more: PASS 12/12, now FAIL 0/12" in output


QUICK: Sequence[str] = ["--pair", "tiny", "--tasks", "chat", "--decoder", "reference"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "OLD", "OLD"], "give --from a single record"),
        (["--conformance", "OLD"], "--compare has no effect with --conformance"),
        (["--claims", "OLD"], "--compare has no effect with --claims"),
        (["--from", "OLD", "--regression", "1"], "--regression is 1.0: a share of the speedup"),
        ([*QUICK, "--draft-tokens", "5"], "K was 3, and is 5"),
        ([*QUICK, "--temperature", "1"], "the temperature was 0.0, and is 1.0"),
        (["--pair", "micro"], "the pair was tiny, and is micro"),
    ],
)
def test_senseless_comparisons_are_one_line_before_anything_is_measured(
    arguments: list[str], words: str, old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [old if argument == "OLD" else argument for argument in arguments]
    assert main(["--compare", old, *given]) == 2
    assert words in one_line(capsys.readouterr().err)


def test_a_margin_without_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--regression", "0.1"]) == 2
    assert "no effect without --compare" in one_line(capsys.readouterr().err)


def test_a_new_measurement_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main([*QUICK, "--prompts", "2", "--out", str(first)]) == 0
    old = str(first / "record.jsonl")
    arguments = [*QUICK, "--prompts", "2", "--compare", old, "--out", str(second)]
    assert main([*arguments, "--regression", "0.99"]) == 0
    assert "2 paired" in capsys.readouterr().out
    assert "Compared with the run of" in (second / "report.md").read_text()


def test_a_page_of_a_run_and_its_comparison_is_of_one_record() -> None:
    new = wrong(run())
    text = report_page.html([render(new), regression.section(run(), new, 0.05)])
    assert "<title>Speculative decoding: tiny" in text
    assert '<span class="mark FAIL">FAIL 0/12 (was PASS 12/12)</span>' in text
    assert '<span class="mark FAIL">lossless no more</span>' in text
