"""The README's code is run as it stands there, and its map is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_all_commands_are_known_to_these_tests() -> None:
    assert commands() == [
        "ci/report",
        "ci/test",
        "pytest suites/ --decoder my_decoder:build --profile smoke",
        "ci/third_party --list",
        "ci/third_party transformers-lookup",  # what it runs is tested in test_third_party.py
        "python -m harness.report --conformance",
        "pytest suites/test_distribution.py --decoder reference_impl.mutants:over_accept",
    ]


def test_the_decoder_of_the_readme_passes(tmp_path: Path) -> None:
    (code,) = blocks("python")
    (tmp_path / "my_decoder.py").write_text(code)
    arguments = commands()[2].removeprefix("pytest suites/").split()
    suites = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(ROOT / "suites")]
    done = run(sys.executable, "-m", "pytest", *suites, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"verdicts of my_decoder:build: \d+ PASS, \d+ UNSUPPORTED\n", done.stdout)


def test_the_known_wrong_decoder_of_the_readme_fails() -> None:
    done = run(sys.executable, "-m", *commands()[6].split(), cwd=ROOT)
    assert done.returncode == 1
    assert "likely fault: drafts are accepted with probability min(1, 1.5 p/q)" in done.stdout


def test_the_report_command_runs_with_arguments(tmp_path: Path) -> None:
    """On a tiny pair; the suites of CI run the other of the two commands."""
    arguments = ["--no-venv", "--pair", "tiny", "--tasks", "chat", "--out", str(tmp_path)]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [str(ROOT / "ci" / "report"), *arguments],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "speedup" in done.stdout


@pytest.mark.parametrize("folder", ["harness", "reference_impl", "suites", "ci"])
def test_the_map_names_what_is_there(folder: str) -> None:
    named = set(re.findall(rf"`({folder}/[\w./]*)`", README)) | {
        f"{folder}/{name}" for name in re.findall(r"`(\w+\.py)`", README)
    }
    tracked = run("git", "ls-files", folder, cwd=ROOT).stdout.split()
    modules = [f for f in tracked if f.endswith(".py") and not f.endswith("__init__.py")]
    for module in modules:
        parents = {f"{parent}/" for parent in Path(module).parents}
        base = f"{folder}/{Path(module).name}"
        assert module in named or base in named or parents & named, f"{module} is not in the map"


def test_every_path_in_the_map_exists() -> None:
    mapped = README.partition("## Map")[2]
    for path in re.findall(r"^\| `([\w./]+)` \|", mapped, re.MULTILINE):
        assert (ROOT / path).exists(), path


SHOWN = (
    "Speedup over the decoder's own plain decoding",
    "Against plain decoding of transformers-assisted, on the same prompts",
    "Claims, and what they come to here",
)


@pytest.mark.parametrize("title", SHOWN)
def test_the_tables_are_those_of_the_committed_report(title: str) -> None:
    report = (ROOT / "reports" / "smollm2-135m" / "report.md").read_text()
    section = report.partition(f"## {title}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert len(table) > 4
    assert "\n".join([f"**{title}**", "", *table, ""]) in README
