"""The decoder in Node that users copy: the suites find nothing wrong with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import record
from harness.adapters import load_decoder
from harness.models import load_pair
from harness.pair_files import UnsupportedPairError
from harness.verdict import Status

ROOT = Path(__file__).parent.parent
DECODER = "cmd: node examples/stdio_node/decoder.mjs"
SUITES = [
    "suites/test_smoke.py",
    "suites/test_contract.py",
    "suites/test_greedy.py",
    "suites/test_stopping.py",
    "suites/test_streaming.py",
    "suites/test_robustness.py",
    "suites/test_cache.py",
    "suites/test_acceptance.py",
    "suites/test_distribution.py::test_family",
]
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")


def test_it_passes_all_that_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *SUITES]
    done = subprocess.run(
        [*command, "--decoder", DECODER, "--results", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [row.verdict for row in record.read(path).verdicts]
    passed = {verdict.check for verdict in verdicts if verdict.status is Status.PASS}
    assert {"greedy.identity", "stopping.eos", "streaming.pieces"} <= passed
    assert {"robustness.bad_input", "distribution.family", "smoke.wired"} <= passed
    assert len(passed) >= 15


def test_it_refuses_models_that_it_cannot_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UnsupportedPairError, match="takes llama and mistral, not gpt2"):
        load_decoder(DECODER, load_pair("tiny-gpt2"))
