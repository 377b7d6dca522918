"""Sweeps: values in turns, a record each, one table; and what their settings are made of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from harness.bench import sweep
from harness.bench.batches import batches_of, measure_batches, schedule_batches
from harness.bench.columns import columns, ratios
from harness.bench.drafts import with_draft
from harness.bench.measure import Settings, missing_capabilities
from harness.bench.prompt_lengths import of_length
from harness.bench.summary import summarise
from harness.bench.tasks import WorkloadError
from harness.bench.workload import Prompt
from harness.command_line import BadInput
from harness.contract import CAPABILITIES, Completion, Request
from harness.models import load_pair
from harness.record import GenerationRow, read
from harness.report import sweeps
from harness.report.__main__ import main as report
from harness.report.document import Struck
from tests.timed_rows import Scripted, says, wrong_if_speculative

SMALL = ["--pair", "tiny", "--tasks", "chat", "--prompts", "2", "--max-new-tokens", "8"]
REFERENCE = [*SMALL, "--decoder", "reference"]
PROMPTS = [Prompt(task, f"{task}-{i}", (1, 2, i)) for task in ("chat", "code") for i in range(5)]
SETTINGS = Settings(max_new_tokens=4, draft_tokens=3, vocab_size=64, batch_size=2)


# Values in turns


def counting(name: str, rows: int, log: list[str]) -> Iterator[int]:
    yield rows
    for _ in range(rows):
        log.append(name)
        yield rows


def test_values_take_turns() -> None:
    log: list[str] = []
    running = {name: counting(name, 4, log) for name in "abc"}
    assert sweep.interleave(running, seed=0) == list("abc")
    assert len(log) == 12
    assert [set(log[i : i + 3]) for i in (0, 3, 6, 9)] == [set("abc")] * 4


def test_values_of_different_sizes_are_done_together() -> None:
    log: list[str] = []
    sweep.interleave({"long": counting("long", 40, log), "short": counting("short", 4, log)}, 0)
    assert [i for i, name in enumerate(log) if name == "short"][-1] > 30


def test_an_interrupted_value_ends_the_sweep() -> None:
    log: list[str] = []

    def swallowed() -> Iterator[int]:
        yield 9
        yield 9

    def raised() -> Iterator[int]:
        yield 9
        raise KeyboardInterrupt

    for stops in (swallowed, raised):
        log.clear()
        assert "a" in sweep.interleave({"a": stops(), "b": counting("b", 9, log)}, seed=0)
        assert len(log) < 9


# From start to end


def test_a_sweep_over_k(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["draft_tokens", "1", "3", *REFERENCE, "--out", str(tmp_path)]) == 0
    paths = [tmp_path / f"draft_tokens-{k}" / "record.jsonl" for k in (1, 3)]
    records = [read(path) for path in paths]
    for k, record in zip((1, 3), records, strict=True):
        assert record.problems == []
        assert record.header.options["draft_tokens"] == k
        assert record.header.options["sweep"] == {"axis": "draft_tokens", "value": str(k)}
        assert max(max(row.drafted or [0]) for row in record.generations) <= k
        assert all(row.overlap for row in record.generations)
    first, second = ([(r.prompt_id, r.first) for r in record.generations] for record in records)
    assert first == second
    (section,) = sweeps.sections(records)
    (table,) = section.tables
    assert table.columns[2] == "draft_tokens"
    assert [row[2:4] for row in table.rows] == [["1", "PASS 2/2"], ["3", "PASS 2/2"]]
    assert [row[-1] == "-" for row in table.rows] == [False, True]  # the last one predicts
    assert sweeps.sections(records[::-1])[0].tables == [table]  # files come by name: 16 before 8
    assert [chart.title for chart in section.charts] == ["Speedup over draft_tokens"]
    out = capsys.readouterr().out
    assert out.count("Speedup over draft_tokens") == 1
    assert "Speedup over draft_tokens" in (tmp_path / "report.html").read_text()
    assert report(["--from", *map(str, paths), "--format", "terminal"]) == 0
    assert out.splitlines()[0] in capsys.readouterr().out


def test_what_cannot_batch_is_unsupported_and_said_so(tmp_path: Path) -> None:
    arguments = ["batch_size", "1", "2", *REFERENCE, "--decoder", "transformers-assisted"]
    sweep.main([*arguments, "--out", str(tmp_path), "--format", "markdown"])
    records = [read(tmp_path / f"batch_size-{size}" / "record.jsonl") for size in (1, 2)]
    assert {row.batch for row in records[0].generations} == {""}
    assert {row.batch for row in records[1].generations} == {"chat-01 and 1 more"}
    (section,) = sweeps.sections(records)
    said = {(row[1], row[2]): row[3] for row in section.tables[0].rows}
    assert said["reference", "2"] == "PASS 2/2"
    assert said["transformers-assisted", "1"] == "PASS 2/2"
    assert said["transformers-assisted", "2"] == "UNSUPPORTED"
    assert "at batch_size 2: not measured: it does not declare" in section.notes[-1].lines[0]


def test_a_mismatched_draft_is_accepted_less_and_the_target_itself_always(tmp_path: Path) -> None:
    values = ["right", "mismatched", "identical"]
    assert sweep.main(["pair", *values, *REFERENCE, "--out", str(tmp_path)]) == 0
    found = {}
    for value in values:
        record = read(tmp_path / f"pair-{value}" / "record.jsonl")
        assert record.header.options["draft_choice"] == value
        (summary,) = summarise(record.generations, ["reference"])
        found[value] = summary.acceptance or 0.0
    assert found["mismatched"] < found["right"] < found["identical"] == 1


@pytest.mark.parametrize(
    ("axis", "values", "status"),
    [
        ("prompt_tokens", ["5", "30"], 0),
        ("dtype", ["float32", "bfloat16"], 0),
        ("max_new_tokens", ["4", "16"], 0),
        ("temperature", ["0", "1"], 3),  # so few sampled tokens say nothing
    ],
)
def test_other_axes(axis: str, values: list[str], status: int, tmp_path: Path) -> None:
    given = [word for word in REFERENCE if axis != "max_new_tokens" or word not in SMALL[-2:]]
    assert sweep.main([axis, *values, *given, "--out", str(tmp_path)]) == status
    paths = [tmp_path / f"{axis}-{value}" / "record.jsonl" for value in values]
    records = [read(path) for path in paths]
    again = ["--from", *map(str, paths), "--format", "html", "--out", str(tmp_path / "again")]
    assert report(again) == status
    for page in (tmp_path / "report.html", tmp_path / "again" / "report.html"):
        assert f"<h3>Speedup over {axis}</h3>" in page.read_text()
    (section,) = sweeps.sections(records)
    assert [row[2] for row in section.tables[0].rows] == values
    if axis == "prompt_tokens":
        lengths = [{row.prompt_tokens for row in record.generations} for record in records]
        assert lengths == [{5}, {30}]


def test_interrupted_values_are_reported_as_far_as_they_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = [*SMALL, "--decoder", "tests.changed_decoders:interrupted"]
    assert sweep.main(["draft_tokens", "1", "2", *stopping, "--out", str(tmp_path)]) == 3
    captured = capsys.readouterr()
    assert "interrupted: what was measured is kept" in captured.err
    records = [read(path) for path in sorted(tmp_path.glob("*/record.jsonl"))]
    assert any(record.problems or record.generations for record in records)


def test_a_lossy_value_is_struck(tmp_path: Path) -> None:
    wrong = [*SMALL, "--decoder", "tests.changed_decoders:wrong"]
    assert sweep.main(["draft_tokens", "1", "2", *wrong, "--out", str(tmp_path)]) == 1
    records = [read(tmp_path / f"draft_tokens-{k}" / "record.jsonl") for k in (1, 2)]
    (section,) = sweeps.sections(records)
    for row in section.tables[0].rows:
        assert row[3] == "FAIL 0/2"
        assert isinstance(row[4], Struck)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["draft_tokens", "0"], "--draft-tokens is 0: at least 1"),
        (["batch_size", "0"], "--batch-size is 0: ask for at least 1"),
        (["draft_tokens", "x"], "invalid int value: 'x'"),
        (["sideways", "1"], "invalid choice: 'sideways'"),
        (["draft_tokens"], "required: VALUE"),
        (["draft_tokens", "1", "--draft-tokens", "2"], "--draft-tokens is what this sweep varies"),
        (["draft_tokens", "1", "--from", "x"], "with --from, which only renders"),
        (["batch_size", "64", *REFERENCE], "a batch of 64 takes 64 prompts"),
        (["prompt_tokens", "500", *REFERENCE], "exceed the context of 128"),
        (["pair", "worse", *SMALL[2:]], "unknown pair 'worse'"),
    ],
)
def test_bad_input_is_one_line(
    arguments: Sequence[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = sweep.main([*arguments, "--out", str(tmp_path)])
    except SystemExit as error:
        status = error.code
    assert status == 2
    stderr = capsys.readouterr().err.strip()
    assert words in stderr
    assert len(stderr.splitlines()) == 1


def test_one_record_of_a_sweep_is_no_sweep() -> None:
    assert sweeps.sections([]) == []


def test_options_name_their_records() -> None:
    found = sweep.options_of("temperature", ["0", "0.7"], REFERENCE, Path("there"))
    assert [(o.temperature, str(o.out)) for o in found.values()] == [
        (0.0, "there/temperature-0"),
        (0.7, "there/temperature-0.7"),
    ]
    with pytest.raises(BadInput, match="render its records"):
        sweep.options_of("temperature", ["0"], ["--advise"], Path("there"))
    with pytest.raises(BadInput, match="is given twice"):
        sweep.options_of("temperature", ["0.7", "0.7"], REFERENCE, Path("there"))


def test_help_imports_no_torch() -> None:
    code = "import sys, harness.bench.sweep; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Batches


def test_batches_are_full_and_of_one_task() -> None:
    found = batches_of(PROMPTS, 2)
    assert [[prompt.prompt_id for prompt in batch] for batch in found] == [
        ["chat-0", "chat-1"],
        ["chat-2", "chat-3"],
        ["code-0", "code-1"],
        ["code-2", "code-3"],
    ]
    with pytest.raises(WorkloadError, match="the task 'chat' has 5"):
        batches_of(PROMPTS, 6)


def batch_rows(decoder: Scripted) -> list[GenerationRow]:
    batches = schedule_batches(["scripted"], batches_of(PROMPTS[:4], 2), 1, 0)
    return list(measure_batches({"scripted": decoder}, batches, SETTINGS, wrong_if_speculative))


def test_seconds_of_a_batch_are_shared_by_tokens() -> None:
    plain = [says(5, 6, 7, 8), says(5, 6, reason="eos")]
    rows = batch_rows(Scripted(plain, plain))
    assert [row.prompt_id for row in rows] == ["chat-0", "chat-1", "chat-2", "chat-3"]
    assert [row.batch for row in rows] == ["chat-0 and 1 more"] * 2 + ["chat-2 and 1 more"] * 2
    for long, short in (rows[:2], rows[2:]):
        assert long.seconds == pytest.approx(2 * short.seconds)
        assert long.plain_seconds == pytest.approx(2 * short.plain_seconds)


def test_a_batch_counts_once() -> None:
    plain = [says(5, 6, 7, 8), says(5, 6, 7, 8)]
    rows = batch_rows(Scripted(plain, plain))
    assert len(ratios(columns(rows).table)) == 2
    (summary,) = summarise(rows, ["scripted"])
    assert summary.prompts == 2
    assert summary.losslessness.total == 4


def test_rows_of_a_batch_are_judged_by_themselves() -> None:
    plain, fast = [says(1, 2, 3, 4), says(5, 6, 7, 8)], [says(1, 2, 3, 4), says(5, 6, 9, 8)]
    rows = batch_rows(Scripted(plain, fast))
    assert [row.identical for row in rows] == [True, False] * 2
    assert [row.fault for row in rows] == ["", "here"] * 2


def test_a_batch_that_lacks_an_answer_is_an_error() -> None:
    rows = batch_rows(Scripted([says(5, 6, 7, 8)], [says(5, 6, 7, 8)]))
    assert {row.error for row in rows} == {
        "plain decoding: ValueError: 1 completions for 2 requests"
    }


def test_batch_is_a_capability() -> None:
    class Alone:
        capabilities = frozenset(CAPABILITIES) - {"batch"}

        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            raise AssertionError

    assert missing_capabilities(Alone(), SETTINGS) == ["batch"]
    assert missing_capabilities(Alone(), Settings(4, 3, 64)) == []


# Prompts and drafts


def test_prompts_of_one_length_keep_their_ends() -> None:
    prompts = [Prompt("chat", "a", (1, 2, 3)), Prompt("code", "x", (9,)), Prompt("chat", "b", (4,))]
    found = of_length(prompts, 2, 4, 64)
    assert [prompt.ids for prompt in found] == [(2, 3), (9, 9), (3, 4)]
    found = of_length(prompts, 6, 4, 64)
    longer = [(2, 3, 4, 1, 2, 3), (9,) * 6, (3, 4, 1, 2, 3, 4)]
    assert [prompt.ids for prompt in found] == longer
    with pytest.raises(WorkloadError, match="exceed the context of 64"):
        of_length(prompts, 62, 4, 64)


def test_other_drafts_of_one_target() -> None:
    pair = load_pair("tiny")
    assert with_draft(pair, "right") is pair
    shuffled = with_draft(pair, "mismatched")
    assert shuffled.target is pair.target
    assert shuffled.fingerprint() != pair.fingerprint()
    for old, new in zip(pair.draft.parameters(), shuffled.draft.parameters(), strict=True):
        assert torch.equal(old.flatten().sort().values, new.flatten().sort().values)
    itself = with_draft(pair, "identical")
    for old, new in zip(pair.target.parameters(), itself.draft.parameters(), strict=True):
        assert torch.equal(old, new)
