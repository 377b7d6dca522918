"""``python -m harness.report``: what it prints, writes and returns, for good and for bad input."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import __main__ as commands
from harness import record
from harness.adapters import load_decoder
from harness.command_line import BadInput
from harness.contract import Completion, Decoder, Request
from harness.models import ModelPair
from harness.record import GenerationRow, Header, PairInfo, Record, VerdictRow, Writer
from harness.report import formats
from harness.report.__main__ import main
from harness.report.arguments import DECODERS, PAIR
from harness.report.options import parse
from harness.report.outcome import exit_status
from harness.report.render import render
from harness.verdict import Status, Verdict
from tests.test_bench import row

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["--pair", "tiny", "--profile", "quick", "--tasks", "chat"]


class Changed:
    """The reference, whose speculative arm goes through ``change``."""

    def __init__(self, pair: ModelPair, change: Any, lacking: str = "") -> None:
        self.reference = load_decoder("reference", pair)
        self.change = change
        self.capabilities = self.reference.capabilities - {lacking}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = self.reference.generate(requests)
        return self.change(completions) if requests[0].speculate else completions


def wrong(pair: ModelPair) -> Decoder:
    """Its last token is another one."""

    def change(completions: list[Completion]) -> list[Completion]:
        completions[0].tokens[-1] = (completions[0].tokens[-1] + 7) % 64
        return completions

    return Changed(pair, change)


def crashing(pair: ModelPair) -> Decoder:
    """It raises as soon as it is to speculate."""

    def change(completions: list[Completion]) -> list[Completion]:
        raise RuntimeError("no more memory")

    return Changed(pair, change)


def interrupted(pair: ModelPair) -> Decoder:
    """Ctrl-C arrives in its third speculative generation, the first being a warm-up."""
    calls = iter(range(100))

    def change(completions: list[Completion]) -> list[Completion]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return completions

    return Changed(pair, change)


def without_plain(pair: ModelPair) -> Decoder:
    """It cannot run with speculation off."""
    return Changed(pair, None, lacking="plain")


def unbuildable(pair: ModelPair) -> Decoder:
    """Its factory raises something of its own."""
    raise RuntimeError("no licence\nfound")


def header(**changes: Any) -> Header:
    found: dict[str, Any] = {
        "command": "python -m harness.report",
        "started": "2026-01-01T00:00:00+00:00",
        "seed": 7,
        "alpha": 0.05,
        "decoders": ["a", "b"],
        "pair": PairInfo("tiny", "made from seed 1", "0123456789abcdef", "cpu", "float32"),
        "versions": {"python": "3.12"},
        "machine": {"system": "Linux", "cores": "2", "threads": "1"},
        "options": {"profile": "quick", "draft_tokens": 3, "temperature": 0.0},
    }
    return Header(**(found | changes))


def made(
    generations: Sequence[GenerationRow] = (), verdicts: Sequence[VerdictRow] = (), **changes: Any
) -> Record:
    problems = changes.pop("problems", [])
    return Record(header(**changes), list(verdicts), list(generations), problems)


def verdict(status: Status, expected: str = "") -> VerdictRow:
    return VerdictRow(
        decoder="a",
        item="suites/test_greedy.py::test_equal",
        suite="greedy",
        seconds=0.1,
        expected_failure=expected,
        verdict=Verdict(check="equal", status=status, message="because", likely_fault="off by one"),
    )


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


# Options


def test_defaults() -> None:
    found = parse([])
    assert found.decoders == DECODERS
    assert (found.pair, found.profile, found.temperature) == (PAIR, "quick", 0)
    assert (found.out, found.formats) == (Path("reports/latest"), ("terminal", "markdown"))


def test_rendering_prints_and_writes_nothing_unless_told() -> None:
    found = parse(["--from", "x.jsonl", "y.jsonl"])
    assert (found.out, found.formats) == (None, ("terminal",))
    assert found.records == (Path("x.jsonl"), Path("y.jsonl"))


def test_decoder_options_are_split_at_the_first_equals_sign() -> None:
    found = parse(["--decoder-option", "a=1", "--decoder-option", "b=x=y"])
    assert found.decoder_options == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draft-tokens", "0"], "--draft-tokens is 0: at least 1"),
        (["--temperature", "-1"], "--temperature is -1.0"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--tasks", "chat,poetry"], "--tasks does not know 'poetry': known are chat, code"),
        (["--tasks", ","], "--tasks is empty"),
        (["--format", "pdf"], "--format does not know 'pdf': known are terminal, markdown"),
        (["--decoder-option", "x"], "'x' is not of the form name=value"),
        (["--from", "x", "--seed", "3"], "--seed has no effect with --from"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse(arguments)


# Bad input, as a user meets it


def one_line(stderr: str) -> str:
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompts", "0"], "--prompts is 0: ask for at least 1"),
        (["--max-new-tokens", "-3"], "--max-new-tokens is -3: ask for at least 1"),
        (["--profile", "huge"], "invalid choice: 'huge' (choose from"),
        (["--dtype", "int4"], "--dtype: invalid choice"),
        (["--draft-tokens", "many"], "invalid int value: 'many'"),
        (["--seed", "-1"], "a seed is 0 or above"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--tasks", "poetry"], "known are chat, code, math, creative"),
        (["--from", "nowhere.jsonl"], "cannot read nowhere.jsonl: No such file"),
        (["--from", "pyproject.toml"], "is not a record of this harness"),
    ],
)
def test_bad_usage_in_a_process(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in one_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pair", "nothing"], "unknown pair 'nothing': known are tiny"),
        (["--target", "only-one"], "give both --target and --draft"),
        (["--target", "suites", "--draft", "suites"], "cannot load 'suites' as a causal LM"),
        (["--device", "abacus", "--pair", "tiny"], "device 'abacus' cannot be used here"),
        (["--pair", "tiny", "--decoder", "no-such"], "unknown decoder 'no-such': known are"),
        (["--pair", "tiny", "--decoder", "json:dumb"], "module 'json' has no function 'dumb'"),
        (["--pair", "tiny", "--decoder", "no_such.module:x"], "cannot import 'no_such.module'"),
        (["--pair", "tiny", "--decoder-option", "colour=red"], "does not take these options"),
        (
            ["--pair", "tiny", "--decoder", "tests.test_report:unbuildable"],
            "RuntimeError: no licence",
        ),
    ],
)
def test_bad_input(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert words in one_line(capsys.readouterr().err)


def test_output_directory_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["--pair", "tiny", "--out", str(tmp_path / "file")]) == 2
    assert "choose another --out" in one_line(capsys.readouterr().err)


# Runs


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    arguments = ["--decoder", "reference", "--decoder", "transformers-lookup", "--seed", "5"]
    done = run(*QUICK[:4], "--tasks", "chat,math", *arguments, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "measuring: 100%" in done.stderr
    assert "PASS 4/4" in done.stdout
    assert "PASS 8/8" in done.stdout
    assert "Against plain decoding of transformers-lookup" in done.stdout
    assert "python -m harness.report --pair tiny --profile quick" in done.stdout
    found = record.read(tmp_path / "record.jsonl")
    assert found.problems == []
    assert found.header.seed == 5
    assert len(found.generations) == 16
    assert (tmp_path / "report.md").read_text().startswith("# Speculative decoding: tiny\n")
    assert not (tmp_path / "report.html").exists()
    again = run("--from", str(tmp_path / "record.jsonl"))
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")


def test_lossy_decoder_fails_and_its_speedup_is_struck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.test_report:wrong", "--decoder", "reference"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    wrong_rows = [line for line in lines if line.startswith("chat") and "wrong" in line]
    assert "FAIL 0/4" in wrong_rows[0]
    speedups = [line for line in wrong_rows if re.search(r"\dx", line)]
    assert len(speedups) == 4
    for line in speedups:  # what was reached, what could have been, and what is predicted
        assert "x not lossless" not in line
        assert ") not lossless" in line
    again = "python -m harness.report --decoder tests.test_report:wrong --tasks chat --pair tiny"
    text = unwrapped("\n".join(lines))
    assert again in text
    assert re.search(r"chat-01: token 39 is \d+, plain decoding gives \d+ \(logit gap", text)
    assert "~~ not lossless" in (tmp_path / "report.md").read_text()


def test_crashing_decoder_is_an_error_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.test_report:crashing", "--decoder", "reference"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    output = capsys.readouterr().out
    assert "ERROR 0/4" in output
    line = "crashing, chat-01 and 3 more: speculative decoding: RuntimeError: no more memory"
    assert line in unwrapped(output)
    assert "PASS 4/4" in output


def test_interrupted_run_keeps_and_reports_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.test_report:interrupted"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    captured = capsys.readouterr()
    assert "interrupted: what was measured is kept" in captured.err
    assert "PASS 1/1" in captured.out
    assert "no footer: the run did not come to its end" in captured.out
    assert len(record.read(tmp_path / "record.jsonl").generations) == 1


def test_decoder_without_plain_is_unsupported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.test_report:without_plain"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    output = capsys.readouterr().out
    assert "UNSUPPORTED" in output
    assert "not measured: it does not declare the capabilities plain" in unwrapped(output)


def test_sampled_run_with_too_few_tokens_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "reference", "--temperature", "0.7", "--prompts", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    output = unwrapped(capsys.readouterr().out)
    assert "INCONCLUSIVE: too few tokens to show even a gross fault" in output
    assert "take more --prompts" in output
    assert "PASS" not in output


# Rendering


def test_torn_last_line_is_named_and_the_rest_is_rendered(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row(task="chat"))
        writer.add(row("b", task="chat"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    found = record.read(path)
    text = formats.terminal([render(found)])
    assert "line 3 is torn" in text
    assert "2.00x" in text
    assert exit_status([found]) == 3


def test_figures_come_out_as_they_were_measured() -> None:
    rows = [
        row(prompt=f"p{i}", plain_seconds=3.0, seconds=2.0, drafted=[3, 3], accepted=[2, 1])
        for i in range(2)
    ]
    text = formats.terminal([render(made(rows))])
    line, *_ = [line for line in text.splitlines() if line.startswith("chat")]
    expected = ["chat", "a", "PASS", "2/2", "1.50x", "[1.50,", "1.50]", "0/2", "50%", "2.50"]
    assert line.split()[: len(expected)] == expected
    assert "(here 2 in some rows) are too narrow" in text


def test_degenerate_text_is_marked() -> None:
    looping = [7] * 20
    text = formats.terminal([render(made([row(tokens=looping, plain_tokens=looping)]))])
    assert "94% !" in text


def test_near_ties_are_counted_and_explained() -> None:
    rows = [row(), row(prompt="p2", tokens=[1, 2, 3, 5], near_tie="logits 1e-06 apart")]
    text = formats.terminal([render(made(rows))])
    assert "PASS 1/2, 1 near tie" in text
    assert "a, p2: logits 1e-06 apart" in text
    assert exit_status([made(rows, decoders=["a"])]) == 0


def test_declared_lossy_decoder_is_shown_as_such() -> None:
    found = made([row()], decoders=["a"], options={"declared_lossy": ["a"]})
    text = formats.terminal([render(found)])
    assert "LOSSY 1/1" in text
    assert "lossy by design" in text
    assert "PASS" not in text
    assert exit_status([found]) == 3


def test_formats_show_the_same_figures() -> None:
    found = [render(made([row(), row("b", tokens=[9, 9, 9, 9], fault="far")]))]
    terminal, markdown = formats.terminal(found), formats.markdown(found)
    for text in ("2.00x", "PASS 1/1", "FAIL 0/1", "a, b", "b, p1: far"):
        assert text in terminal
        assert text in markdown
    assert "(2.00x) not lossless" in terminal
    assert "~~2.00x~~ not lossless" in markdown


def test_markdown_is_escaped() -> None:
    found = render(made([row(error="pipe | and _this_")]))
    assert "pipe \\| and \\_this\\_" in formats.markdown([found])


def test_busy_machine_is_noted() -> None:
    busy = made([row()], options={"load_average": 3.5})
    assert "load 3.5 on 2 cores" in formats.terminal([render(busy)])
    calm = made([row()], options={"load_average": 0.2})
    assert "busy" not in formats.terminal([render(calm)])


def test_several_records_are_several_sections() -> None:
    text = formats.terminal([render(made([row()])), render(made([row("b")]))])
    assert text.count("Speculative decoding: tiny\n") == 2


def test_verdicts_of_the_suites_are_counted() -> None:
    verdicts = [verdict(Status.PASS), verdict(Status.FAIL), verdict(Status.FAIL, "known: issue 1")]
    text = formats.terminal([render(made(verdicts=verdicts))])
    assert "suites/test_greedy.py::test_equal: because; likely fault: off by one" in text
    assert "(expected: known: issue 1)" in unwrapped(text)


def test_empty_record_says_so() -> None:
    assert "nothing was measured" in formats.terminal([render(made())])
    assert exit_status([made()]) == 3


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([verdict(Status.PASS)], 0),
        ([verdict(Status.PASS), verdict(Status.UNSUPPORTED)], 0),
        ([verdict(Status.PASS), verdict(Status.FAIL, "known")], 0),
        ([verdict(Status.PASS), verdict(Status.FAIL)], 1),
        ([verdict(Status.ERROR), verdict(Status.FAIL)], 1),
        ([verdict(Status.PASS), verdict(Status.ERROR)], 3),
        ([verdict(Status.PASS), verdict(Status.INCONCLUSIVE)], 3),
        ([verdict(Status.UNSUPPORTED)], 3),
    ],
)
def test_exit_status(found: list[VerdictRow], status: int) -> None:
    assert exit_status([made(verdicts=found, decoders=["a"])]) == status


def test_help_and_rendering_import_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row())
    for arguments in (["--help"], ["--from", str(path)]):
        code = (
            "import sys\n"
            "from harness.report.__main__ import main\n"
            f"try:\n    main({arguments!r})\nexcept SystemExit: pass\n"
            "heavy = {'torch', 'transformers', 'matplotlib', 'jinja2'}\n"
            "assert not heavy & set(sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stderr


def test_cycles_are_looked_for_again_after_rendering(tmp_path: Path) -> None:
    assert gc.isenabled()
    path = tmp_path / "record.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row())
    assert main(["--from", str(path), "--format", "terminal"]) == 3
    assert main(["--from", str(tmp_path)]) == 2
    assert gc.isenabled()


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    commands.main()
    listed = capsys.readouterr().out
    for name in ("python -m harness.report", "pytest suites/", *DECODERS, PAIR, "tiny-ties"):
        assert name in listed
