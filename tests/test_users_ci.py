"""The suites in somebody else's CI: an installed package, GitHub's formats, a badge, junit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import record
from harness.pytest_entry import _of_the_suites
from harness.report import github
from harness.report.badge import badge
from harness.report.standings import standings
from tests.test_conformance import HOSTILE, MIXED, found, made

ROOT = Path(__file__).resolve().parent.parent
DECODER = """\
from harness.adapters import load_decoder


class Mine:
    capabilities = frozenset({"greedy", "eos", "plain"})

    def __init__(self, pair, last):
        self.reference, self.last = load_decoder("reference", pair), last

    def generate(self, requests):
        answers = self.reference.generate(requests)
        for request, answer in zip(requests, answers):
            if self.last is not None and request.speculate:
                answer.tokens[-1] = self.last
        return answers


def build(pair):
    return Mine(pair, None)


def wrong(pair):
    return Mine(pair, 0)
"""


# GitHub


def test_the_summary_counts_and_tells_every_finding() -> None:
    row = found("FAIL", "cache", message="token 3 is 4", likely_fault="no rollback", repro="x = 1")
    [standing] = standings([made(*MIXED, row)])
    text = github.summary(standing, ["suites/test_greedy.py::test_ties[tiny]"], ["test_gone*"])
    assert text.startswith("# Conformance of a\n")
    assert "| greedy " in text
    assert "## FAIL\n\n**cache::equal[tiny]**: token 3 is 4\n- likely fault: no rollback\n" in text
    assert "<details><summary>reproduce</summary>\n\n```python\nx = 1\n```\n\n</details>" in text
    assert "## xfail\n\n**greedy::offsets[tiny]**: because\n- known: loses the last token" in text
    assert text.index("## FAIL") < text.index("## ERROR") < text.index("## xfail")
    assert "take them out of the xfails file\n\n- `suites/test_greedy.py::test_ties[tiny]`" in text
    assert "- `test_gone*`" in text


def test_what_a_record_says_is_no_markup_in_the_summary() -> None:
    row = found("FAIL", message=HOSTILE, likely_fault=HOSTILE, repro="```\n# heading\n````\n")
    text = github.summary(standings([made(row)])[0])
    assert "\\<script>alert(1)\\</script> \\| \\`x\\`" in text
    assert "`````python\n```\n# heading\n````\n\n`````" in text


def test_only_what_is_unexpected_is_marked() -> None:
    [standing] = standings([made(*MIXED, found("FAIL", message="50%\nof: these"))])
    lines = github.marks(standing, ["suites/test_greedy.py::test_ties[tiny]"])
    assert lines[0] == "::error title=FAIL greedy%3A%3Aequal[tiny]::50%25%0Aof: these"
    assert [line.split("[")[0] for line in lines[1:]] == [
        "::error title=ERROR stopping%3A%3Aequal",
        "::error title=INCONCLUSIVE distribution%3A%3Aequal",
        "::error title=passes now%3A greedy%3A%3Aties",
    ]
    [standing] = standings([made(*(found("FAIL", name=str(n)) for n in range(50)))])
    assert len(github.marks(standing)) == github.MARKED


# The badge


@pytest.mark.parametrize(
    ("statuses", "known", "as_expected", "message", "colour"),
    [
        (["PASS", "PASS", "UNSUPPORTED"], "", True, "2 PASS (ci)", "brightgreen"),
        (["PASS", "FAIL"], "", False, "1 FAIL (ci)", "red"),
        (["PASS", "ERROR", "INCONCLUSIVE"], "", False, "1 ERROR (ci)", "orange"),
        (["PASS", "INCONCLUSIVE"], "", False, "1 INCONCLUSIVE (ci)", "yellow"),
        (["PASS", "FAIL"], "there", True, "1 PASS, 1 known failures (ci)", "yellow"),
        (["PASS"], "", False, "run incomplete or xfails stale (ci)", "lightgrey"),
        (["UNSUPPORTED"], "", True, "nothing passed (ci)", "lightgrey"),
        ([], "", True, "nothing passed (ci)", "lightgrey"),
    ],
)
def test_a_badge_is_green_only_where_all_is_well(
    statuses: list[str], known: str, as_expected: bool, message: str, colour: str
) -> None:
    rows = [found(status, known="" if status == "PASS" else known) for status in statuses]
    assert json.loads(badge(rows, "ci", as_expected)) == {
        "schemaVersion": 1,
        "label": "speculative decoding",
        "message": message,
        "color": colour,
    }


# An installed package in a directory of its own


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("suites", True),
        ("suites/", True),
        ("suites.test_greedy", True),
        ("suites/test_greedy.py::test_identity[tiny]", True),
        (str(ROOT / "suites" / "test_smoke.py"), True),
        ("tests", False),
        ("-q", False),
        ("--ignore=suites", False),
        ("tests/suites", False),
        ("/somewhere/suites", False),
    ],
)
def test_what_names_the_suites(argument: str, asked: bool) -> None:
    assert _of_the_suites(argument) is asked


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package as its wheel would install it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("harness", "reference_impl", "suites"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    packages = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    return packages


@pytest.fixture
def elsewhere(installed: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run pytest in a directory that knows nothing of the harness but its installation."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "GITHUB"))}
    environment |= {"PYTHONPATH": str(installed)}
    (tmp_path / "mine.py").write_text(DECODER)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_wheel_has_all_it_needs(installed: Path) -> None:
    for name in (
        "suites/test_greedy.py",
        "harness/prompts/code.jsonl",
        "harness/report/templates/conformance.html.j2",
        "harness/pytest_entry.py",
    ):
        assert (installed / name).exists(), name
    for folder in ("xfails", "recipes", "node"):
        there, packed = (base / "harness" / "adapters" / folder for base in (ROOT, installed))
        assert {path.name for path in packed.iterdir()} == {path.name for path in there.iterdir()}


def test_a_wrong_decoder_in_another_directory_and_everything_a_ci_wants_of_it(
    elsewhere: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    page = tmp_path / "summary.md"
    done = elsewhere(
        *("--pyargs", "suites", "--decoder", "mine:wrong", "-k", "wired or identity"),
        *("--junitxml", "junit.xml", "--results", "out/record.jsonl", "--badge", "out/badge.json"),
        *("--format", "github", "-n", "2"),
        GITHUB_STEP_SUMMARY=str(page),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error title=FAIL greedy%3A%3Aidentity[tiny]::" in done.stdout
    assert "# Conformance of mine:wrong\n" in page.read_text()
    assert "# Conformance" not in done.stdout
    assert json.loads((tmp_path / "out" / "badge.json").read_text())["color"] == "red"
    rows = record.read(tmp_path / "out" / "record.jsonl").verdicts
    assert {row.item for row in rows} >= {"suites/test_greedy.py::test_identity[tiny]"}
    [suite] = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert int(suite.attrib["failures"]) >= 1
    failure = suite.find(".//testcase[@name='test_identity[tiny]']/failure")
    assert failure is not None
    assert "FAIL greedy.identity" in (failure.text or "")


def test_a_right_decoder_where_the_plugin_is_named_as_well(
    elsewhere: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p harness.pytest_plugin\n")
    (tmp_path / "skips.txt").write_text("test_smoke.py::test_absent*  # not there\n")
    done = elsewhere(
        *("--pyargs", "suites.test_smoke", "--decoder", "mine:build", "--format", "github"),
        *("--badge", "badge.json", "--results", "record.jsonl", "--skips-file", "skips.txt"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "decoder: mine:build\n" in done.stdout
    assert "# Conformance of mine:build\n" in done.stdout
    assert "::error" not in done.stdout
    assert json.loads((tmp_path / "badge.json").read_text())["message"] == "1 PASS (smoke)"
    [row] = record.read(tmp_path / "record.jsonl").verdicts
    assert row.item == "suites/test_smoke.py::test_wired[tiny]"
    assert "stale entry, matches no item of this run: test_smoke.py::test_absent*" in done.stdout


def test_other_runs_of_pytest_are_left_alone(
    elsewhere: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Somebody's own option of a name that the plugin has, too."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--seed', type=int)\n"
    )
    (tmp_path / "test_own.py").write_text(
        "def test_seed(pytestconfig):\n    assert pytestconfig.getoption('seed') == 3\n"
    )
    done = elsewhere("--seed=3", "test_own.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "html"], "unknown format 'html': known are terminal, github"),
        (["--badge", "."], "cannot write --badge .: Is a directory"),
    ],
)
def test_bad_options_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(ROOT)
    quiet = ["-pno:cacheprovider", "-pno:faulthandler", "-pno:xdist", "--capture=no"]
    assert pytest.main(["suites/test_smoke.py", *quiet, *arguments]) == 2
    told = [line for line in "".join(capsys.readouterr()).splitlines() if "error" in line]
    assert told == [f"Exit: error: {words}"]
