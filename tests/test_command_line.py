"""Bad input to any command is one line on stderr, and exit status 2."""

from __future__ import annotations

import importlib
import re

import pytest

COMMANDS = [
    "harness.bench.throughput",
    "harness.gallery",
    "harness.mutants",
    "harness.new_decoder",
    "harness.report.__main__",
    "harness.seeds",
    "harness.stats.calibration",
    "harness.stats.efficiency",
    "harness.stats.figure",
    "harness.third_party",
    "reference_impl.bench",
    "reference_impl.rules",
]


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--out"], ["--seed", "x"]])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_one_line(
    command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(command).main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("(see --help)")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_the_command_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(command).main(["--help"])
    assert ended.value.code == 0
    shown = command.removesuffix(".__main__")
    short = shown.removeprefix("harness.")
    assert re.match(rf"usage: (python -m {shown}|ci/{short}) ", capsys.readouterr().out)
