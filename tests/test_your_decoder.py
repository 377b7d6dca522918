"""The page for somebody with a decoder: its commands are run as they stand there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.adapters.http_client import ServerError
from harness.adapters.server_process import ServerProcess
from harness.contract import Request
from harness.models import load_pair

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "your-decoder.md").read_text()
# Enough to know that it decodes as it should; the plain function goes through more of them.
ITEMS = {"python": "wired or identity or ties or offsets or context or requests"}
FEW = "wired or identity"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


INSTALL, PYTHON, WRONG, STDIO, HTTP, RUNNING, CI = (block.splitlines() for block in blocks("sh"))


def shell(
    command: str, directory: Path, items: str = FEW, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a line as a person would who has the package installed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "GITHUB"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": f"-p harness.pytest_plugin -p no:cacheprovider -k '{items}'",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def verdicts(done: subprocess.CompletedProcess[str]) -> str:
    found = re.search(r"^verdicts of (.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return found[1]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A directory with what the first command writes."""
    done = shell(PYTHON[0], tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_installation_is_what_the_project_asks_for() -> None:
    setup = (ROOT / "ci" / "setup").read_text()
    [torch] = re.findall(r"torch==\S+", INSTALL[2])
    assert torch in setup
    workflow = (ROOT / "ci" / "third_party.yml").read_text()
    [source] = re.findall(r"git\+\S+(?=\")", INSTALL[3])
    assert source in workflow


def test_python_ends_green(mine: Path) -> None:
    done = shell(PYTHON[1], mine, ITEMS["python"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"mine:build: \d+ PASS, \d+ UNSUPPORTED", verdicts(done))
    assert re.search(r"^verdicts of mine:build: \d+ PASS, \d+ UNSUPPORTED$", PAGE, re.M)


def test_the_function_of_the_page_is_all_that_is_needed(mine: Path) -> None:
    [code] = blocks("python")
    (mine / "own.py").write_text(code)
    done = shell(CI[0].replace("mine:build", "own:build"), mine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Conformance of own:build\n" in done.stdout
    for name in ("junit.xml", "record.jsonl", "badge.json"):
        assert (mine / name).exists()


def test_a_wrong_one_ends_red_and_says_what_the_page_says(mine: Path) -> None:
    assert shell(WRONG[0], mine).returncode == 0
    assert (mine / "wrong.py").read_text() != (mine / "mine.py").read_text()
    done = shell(WRONG[1], mine)
    assert done.returncode == 1
    shown = next(block for block in blocks("text") if block.startswith("FAIL"))
    for line in shown.splitlines():
        # Numbers depend on the machine's arithmetic, the form does not.
        form = re.sub(r"\d+(\\\.\d+)?(e-?\d+)?", r"[\\d.e-]+", re.escape(line))
        assert re.search(rf"^{form}$", done.stdout, re.M), f"{line}\n\n{done.stdout}"


@pytest.mark.parametrize(("door", "name"), [(STDIO, "child"), (HTTP, "served")])
def test_other_doors_end_green(door: list[str], name: str, tmp_path: Path) -> None:
    assert shell(door[0], tmp_path).returncode == 0
    done = shell(door[1], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r": [2-9] PASS", verdicts(done))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[str]]:
    """URLs of two that run: with speculation, and without."""
    assert shell(HTTP[0], tmp_path).returncode == 0
    pair = load_pair("tiny")
    stand_in = str(tmp_path / "served_server.py")
    command = [sys.executable, stand_in, "--vocab-size", str(pair.vocab_size)]
    command += ["--target", str(pair.directory("target"))]
    listening = re.compile(r"listening on (http://\S+)")
    speculation = ["--draft", str(pair.directory("draft"))]
    running = [ServerProcess([*command, *more], listening) for more in (speculation, [])]
    yield [server.url for server in running]
    for server in running:
        server.stop()


def test_a_server_that_runs_needs_no_file(servers: list[str], tmp_path: Path) -> None:
    pair, line = load_pair("tiny"), RUNNING[0]
    for word, value in [
        ("http://127.0.0.1:8000", servers[0]),
        ("http://127.0.0.1:8001", servers[1]),
        ("--target TARGET", f"--target {pair.directory('target')}"),
        ("--draft DRAFT", f"--draft {pair.directory('draft')}"),
    ]:
        assert word in line
        line = line.replace(word, value)
    done = shell(line, tmp_path, "wired or test_greedy.py and identity")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r": [2-9] PASS", verdicts(done))


def test_a_server_that_died_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell(HTTP[0], tmp_path).returncode == 0
    monkeypatch.syspath_prepend(tmp_path)
    served, pair = importlib.import_module("served"), load_pair("tiny")
    decoder = served.build(pair)
    decoder._plain.stop()
    request = Request(prompt=(1, 2), max_new_tokens=3, speculate=False)
    with pytest.raises(
        ServerError, match=r"python\S* was ended by SIG\w+; its log ends: .*listening"
    ):
        decoder.generate([request])
    decoder.close()
    crash = "def do_POST(self):\n        os._exit(print('out of memory', flush=True) or 3)\n"
    stand_in = tmp_path / "served_server.py"
    text = stand_in.read_text().replace("import json\n", "import json\nimport os\n")
    stand_in.write_text(text.replace("def do_POST(self):\n", crash))
    with pytest.raises(ValueError, match=r"exited with status 3; its log ends: .*out of memory"):
        served.build(pair)


def test_links_and_paths_of_the_page_lead_somewhere() -> None:
    for path in re.findall(r"`((?:ci|docs|examples|harness)/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists(), path
    anchors = {
        re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))
        for title in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    for anchor in re.findall(r"\(#([\w-]+)\)", PAGE):
        assert anchor in anchors
