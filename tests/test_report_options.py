"""``python -m harness.report``: options and bad input, as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.command_line import BadInput
from harness.report.__main__ import main
from harness.report.arguments import DECODERS, PAIR
from harness.report.options import parse
from tests.records import one_line, run


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
        (["--claims", "x", "--format", "svg"], "svg draws speedups, which --claims has none of"),
        (["--decoder-option", "x"], "'x' is not of the form name=value"),
        (["--from", "x", "--seed", "3"], "--seed has no effect with --from"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse(arguments)


# Bad input


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
            ["--pair", "tiny", "--decoder", "tests.changed_decoders:unbuildable"],
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
