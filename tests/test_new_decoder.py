"""``python -m harness.new_decoder``: what it writes is clean, and nothing is overwritten."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.expectations import Expectations
from harness.new_decoder import DOORS, command, main, text, write

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("door", DOORS)
def test_files_are_written_and_the_next_command_is_told(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That they work as they are, `test_your_decoder.py` tests."""
    monkeypatch.chdir(tmp_path)
    assert main(["my-own", "--door", door]) == 0
    printed = capsys.readouterr().out
    for end in DOORS[door]:
        assert (tmp_path / f"my_own{end}").exists()
        assert f"written: my_own{end} " in printed
    told = re.search(r"^next: (pytest --pyargs suites .*)$", printed, re.M)
    assert told
    assert told[1] in (tmp_path / "my_own.py").read_text()


@pytest.mark.parametrize("door", DOORS)
def test_what_is_written_is_clean(door: str, tmp_path: Path) -> None:
    write("mine", door, tmp_path)
    for arguments in (["check"], ["format", "--check"]):
        settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, *settings, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    for path in tmp_path.iterdir():
        assert not re.search(r"\b(NAME|COMMAND)\b", path.read_text())


def test_the_file_of_known_failures_can_be_read(tmp_path: Path) -> None:
    write("mine", "python", tmp_path)
    assert Expectations.read(str(tmp_path / "mine.xfails.txt"), None).xfails == []
    example = text("mine", "python", "xfails").splitlines()[-1].removeprefix("# ")
    (tmp_path / "example.txt").write_text(example)
    assert len(Expectations.read(str(tmp_path / "example.txt"), None).xfails) == 1


def test_nothing_is_overwritten_and_nothing_written_by_halves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.xfails.txt").write_text("precious")
    assert main(["mine", "--directory", str(tmp_path)]) == 2
    assert f"error: {tmp_path}/mine.xfails.txt is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.xfails.txt"]
    assert (tmp_path / "mine.xfails.txt").read_text() == "precious"


def test_another_directory_is_made_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mine", "--directory", str(tmp_path / "a")]) == 0
    assert f"next: cd {tmp_path}/a && pytest --pyargs suites" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch", "'torch' is a module that is installed"),
        ("json", "'json' is a module that is installed"),
        ("class", "'class' cannot be the name of a module"),
        ("a.b", "'a.b' cannot be the name of a module"),
        ("../x", "cannot be the name of a module"),
        ("", "cannot be the name of a module"),
    ],
)
def test_bad_names(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--directory", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["mine", "--directory", str(tmp_path / "file" / "x")]) == 2
    assert "error: cannot write to" in capsys.readouterr().err


def test_an_unknown_door_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["mine", "--door", "window"])
    assert capsys.readouterr().err.count("\n") == 1


def test_a_childs_command_is_quoted() -> None:
    assert '"cmd: python a_b.py"' in command("a-b", "stdio")
