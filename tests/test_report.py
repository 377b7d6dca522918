"""``python -m harness.report``: what a run prints, writes and returns."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import __main__ as commands
from harness import record
from harness.record import Writer
from harness.report.__main__ import main
from harness.report.arguments import DECODERS, PAIR
from tests.records import QUICK, ROOT, header, run, unwrapped
from tests.timed_rows import row


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
    assert (again.returncode, again.stderr) == (0, "")
    shown, _, where = done.stdout.rpartition("The whole report: ")
    assert where == f"{tmp_path / 'report.md'}; --verbose prints it.\n"
    assert again.stdout.rpartition("The whole report: ")[0] == shown
    assert "Where the time goes" not in shown
    verbose = run("--from", str(tmp_path / "record.jsonl"), "--verbose")
    assert "Where the time goes" in verbose.stdout
    assert "The whole report" not in verbose.stdout


def test_lossy_decoder_fails_and_its_speedup_is_struck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.changed_decoders:wrong", "--decoder", "reference"]
    assert main([*arguments, "--verbose", "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    wrong_rows = [line for line in lines if line.startswith("chat") and "wrong" in line]
    assert "FAIL 0/4" in wrong_rows[0]
    speedups = [line for line in wrong_rows if re.search(r"\dx", line)]
    assert len(speedups) == 4
    for line in speedups:  # what was reached, what could have been, and what is predicted
        assert "x not lossless" not in line
        assert ") not lossless" in line
    again = (
        "python -m harness.report --decoder tests.changed_decoders:wrong --tasks chat --pair tiny"
    )
    text = unwrapped("\n".join(lines))
    assert again in text
    assert re.search(r"chat-01: token 39 is \d+, plain decoding gives \d+ \(logit gap", text)
    assert "~~ not lossless" in (tmp_path / "report.md").read_text()


def test_crashing_decoder_is_an_error_and_the_others_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.changed_decoders:crashing", "--decoder", "reference"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    output = capsys.readouterr().out
    assert "ERROR 0/4" in output
    line = "crashing, chat-01 and 3 more: speculative decoding: RuntimeError: no more memory"
    assert line in unwrapped(output)
    assert "PASS 4/4" in output


def test_interrupted_run_keeps_and_reports_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.changed_decoders:interrupted"]
    assert main([*arguments, "--out", str(tmp_path)]) == 3
    captured = capsys.readouterr()
    assert "interrupted: what was measured is kept" in captured.err
    assert "PASS 1/1" in captured.out
    assert "no footer: the run did not come to its end" in captured.out
    assert len(record.read(tmp_path / "record.jsonl").generations) == 1


def test_decoder_without_plain_is_unsupported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--decoder", "tests.changed_decoders:without_plain"]
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
