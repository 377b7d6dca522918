"""The shell scripts: they parse, refuse an old Python in one line, and know no machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
SCRIPTS = ["ci/setup", "ci/report", "ci/test", "ci/gpu", "ci/third_party", ".ci/run"]
TOOLS = ["bash", "dirname", "cat", "cksum", "mktemp", "rm"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_parse_and_may_be_run(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True)
    assert os.access(ROOT / script, os.X_OK)
    assert (ROOT / script).read_text().startswith("#!/usr/bin/env bash\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with nothing but the scripts, and a PATH folder with their tools."""
    shutil.copytree(ROOT / "ci", tmp_path / "checkout" / "ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "checkout")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path / "checkout"


def install(checkout: Path, name: str, body: str) -> Path:
    """A program on the PATH of ``run``."""
    program = checkout.parent / "bin" / name
    program.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    program.chmod(0o755)
    return program


def run(
    checkout: Path, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """From another directory, with nothing of this process's environment."""
    return subprocess.run(
        ["bash", checkout / "ci" / script, *arguments],
        env={"PATH": str(checkout.parent / "bin"), "HOME": str(checkout.parent)} | environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_old_python_is_refused_in_one_line(checkout: Path) -> None:
    install(checkout, "python3", "exit 1")  # what the version check of an old one comes to
    done = run(checkout, "setup")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "3.11" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("arguments", [(), ("--no-venv",)])
def test_no_python_is_refused_in_one_line(checkout: Path, arguments: tuple[str, ...]) -> None:
    done = run(checkout, "setup", *arguments)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "ython" in done.stderr


def test_the_version_check_lets_this_python_pass_and_no_older_one() -> None:
    source = (ROOT / "ci" / "setup").read_text()
    check = source.split("-c '", 1)[1].split("'", 1)[0]
    for version, status in [("(3, 10, 12)", 1), ("(3, 11, 0)", 0), ("(3, 13, 1)", 0)]:
        code = check.replace("sys.version_info", version)
        assert code != check
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == status


PYTHON = """\
echo "$@" >>"$HOME/calls"
case "$*" in
    *version_info*) ;;
    *purelib*) echo "$HOME" ;;
    "-c import torch") ;;
    "-m pip "*) ;;
    *) echo ran "$@" ;;
esac
"""


def test_the_environment_is_installed_once_and_again_when_the_project_changes(
    checkout: Path,
) -> None:
    python = install(checkout, "python", PYTHON)

    def installs() -> int:
        done = run(checkout, "setup", "--no-venv")
        assert (done.returncode, done.stdout) == (0, f"{python}\n")
        return (checkout.parent / "calls").read_text().count("-m pip install")

    assert installs() == 1
    assert installs() == 1
    with (checkout / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert installs() == 2


def test_report_hands_its_arguments_on_without_its_own(checkout: Path) -> None:
    install(checkout, "python", PYTHON)
    done = run(checkout, "report", "--profile", "quick", "--no-venv", "--out", "a b")
    assert done.returncode == 0
    assert done.stdout == "ran -m harness.report --profile quick --out a b\n"


def test_the_active_environment_is_used(checkout: Path) -> None:
    install(checkout, "python", PYTHON)
    done = run(checkout, "setup", VIRTUAL_ENV="/nowhere")
    assert done.returncode == 1
    assert "/nowhere/bin/python" in done.stderr
    (checkout.parent / "env").mkdir()
    (checkout.parent / "env" / "bin").symlink_to(checkout.parent / "bin")
    done = run(checkout, "setup", VIRTUAL_ENV=str(checkout.parent / "env"))
    assert done.stdout == f"{checkout.parent}/env/bin/python\n"


def test_a_failed_installation_shows_its_log_and_fails(checkout: Path) -> None:
    failure = '"-m pip "*) echo no space left; exit 1'
    install(checkout, "python", PYTHON.replace('"-m pip "*)', failure))
    done = run(checkout, "report", "--no-venv")
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert "harness.report" not in (checkout.parent / "calls").read_text()
    assert run(checkout, "setup", "--no-venv").returncode == 1  # and is tried again


def test_tests_stop_at_the_first_stage_that_fails(checkout: Path) -> None:
    failure = '*"ruff format"*) exit 3 ;;\n    *) echo ran'
    install(checkout, "python", PYTHON.replace("*) echo ran", failure))
    done = run(checkout, "test", "--no-venv")
    assert done.returncode == 3
    assert "ran -m ruff check ." in done.stdout
    assert "mypy" not in done.stdout
    assert "pytest" not in done.stdout

    done = run(checkout, "test", "--no-venv", "--no-lint", "-k", "greedy")
    assert done.returncode == 0
    assert "ruff" not in done.stdout
    assert done.stdout.count("-k greedy") == 3


def tracked_files() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_tracked_file_names_a_registry_or_this_machine() -> None:
    """Where packages come from is configured on the machine, never in the project."""
    hosts = ["py" + "pi.org", "files.python" + "hosted", "download.py" + "torch", "index" + "-url"]
    places = [f"{place}/" for place in (ROOT, Path.home()) if len(place.parts) > 1]
    for path in tracked_files():
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" in content:
            continue  # weights
        for word in hosts + places:
            assert word.encode() not in content, f"{path.relative_to(ROOT)} has {word}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", ROOT / "ci" / "gpu", tmp_path / "out"],
        env=os.environ | {"SPECDEC_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ci/gpu: not run: no CUDA device here\n"
    assert not (tmp_path / "out").exists()


def test_on_a_gpu_all_stages_share_the_time(tmp_path: Path) -> None:
    """With a stand-in for Python that is there at once, and a GPU that is not."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$@"\n')
    python.chmod(0o755)
    for seconds, run, left_out in (("60", 7, 0), ("0", 0, 7)):
        done = subprocess.run(
            ["bash", ROOT / "ci" / "gpu", tmp_path / "out"],
            env=os.environ | {"SPECDEC_PYTHON": str(python), "SPECDEC_SECONDS": seconds},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout.count("exit status 0"), done.stdout.count("not run")) == (run, left_out)
        assert done.returncode == int(left_out > 0)
