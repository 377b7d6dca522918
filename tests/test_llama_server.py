"""llama-server as a subject: its processes, on a stand-in; the real one where it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.adapters import NotInstalledError, load_decoder
from harness.adapters.engines import environment
from harness.adapters.http_client import ServerError
from harness.adapters.llama_server import MOST, LlamaServers, draft, ngram, synthetic
from harness.adapters.server_process import ServerProcess
from harness.checks import greedy
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Request
from harness.models import ModelPair, load_pair
from harness.pair_files import UnsupportedPairError
from harness.verdict import Status

pytest.importorskip("gguf")
FAKE = Path(__file__).with_name("fake_llama_server.py")
REAL = environment("llama-cpp") / "bin" / "llama-server"
LISTENING = re.compile(r"listening on (http://\S+)")
PROMPT = (3, 1, 4, 1, 5)


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return load_pair("tiny")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is what is installed."""
    program = tmp_path / "llama-cpp" / "bin" / "llama-server"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))


@pytest.fixture
def servers(fake: None, pair: ModelPair) -> Iterator[LlamaServers]:
    """One decoder on the stand-in."""
    decoder = draft(pair)
    yield decoder
    decoder.close()


def request(k: int = 4, length: int = 3, speculate: bool = True) -> Request:
    return Request(prompt=PROMPT, max_new_tokens=length, draft_tokens=k, speculate=speculate)


def pids(servers: LlamaServers) -> list[int]:
    return [server._process.pid for server, _ in servers._running.values()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_server_a_k_and_answers_in_order(servers: LlamaServers) -> None:
    requests = [request(k) for k in (2, 5, 2)] + [request(speculate=False)]
    answers = servers.generate(requests)
    assert [answer.tokens for answer in answers] == [[2] * 3, [5] * 3, [2] * 3, [0] * 3]
    assert servers.versions == {"llama.cpp": "b0-fake"}
    assert {"plain", "stream", "batch", "greedy"} <= servers.capabilities


def test_few_servers_are_kept_and_plain_decoding_always(servers: LlamaServers) -> None:
    plain = servers._running[0][0]._process.pid
    started = set(pids(servers))
    for k in range(1, MOST + 4):
        servers.generate([request(k)])
        started |= set(pids(servers))
    kept = set(pids(servers))
    assert len(kept) == MOST + 1
    assert plain in kept
    assert not any(map(alive, started - kept))


def test_close_stops_all(servers: LlamaServers) -> None:
    started = pids(servers)
    servers.close()
    assert not any(map(alive, started))
    servers.close()


def test_a_server_that_dies_says_why_and_is_replaced(
    fake: None, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LLAMA", "dies")
    decoder = draft(pair)
    try:
        with pytest.raises(ServerError, match=r"SIGABRT.*GGML_ASSERT\(false\) failed"):
            decoder.generate([request(length=13)])
        assert decoder.generate([request()])[0].tokens == [4] * 3
    finally:
        decoder.close()


def test_a_server_that_does_not_start_shows_its_log(
    fake: None, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LLAMA", "exits")
    with pytest.raises(ValueError, match=r"exited with status 1; .*failed to load model"):
        draft(pair)


def test_not_installed_says_how(
    tmp_path: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    for name in ("llama-server", "llama-ngram-mod", "llama-synth"):
        with pytest.raises(NotInstalledError, match="ci/third_party --install llama-cpp"):
            load_decoder(name, pair)


def test_bad_options(fake: None, pair: ModelPair) -> None:
    with pytest.raises(ValueError, match="unknown kind 'suffix': known are cache, map-k"):
        ngram(pair, kind="suffix")
    with pytest.raises(ValueError, match="slots is 0"):
        synthetic(pair, slots=0)
    with pytest.raises(ValueError, match="unexpected keyword"):
        load_decoder("llama-server", pair, {"slotz": "2"})
    with pytest.raises(UnsupportedPairError, match="no GGUF of Mistral"):
        draft(load_pair("tiny-window"))


def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    code = "import time; print('loading', flush=True); time.sleep(60)"
    with pytest.raises(ValueError, match=r"did not listen within 2 s; its log ends: loading"):
        ServerProcess([sys.executable, "-c", code], LISTENING, timeout=2)
    with pytest.raises(ValueError, match=r"cannot start .*nothing: No such file"):
        ServerProcess([str(tmp_path / "nothing")], LISTENING)


@pytest.mark.parametrize("signal_", ["", "SIGTERM", "SIGKILL"])
def test_no_server_outlives_the_interpreter(signal_: str) -> None:
    ending = f"os.kill(os.getpid(), signal.{signal_})" if signal_ else "1 / 0"
    code = f"""
import os, re, signal, sys
from harness.adapters.server_process import ServerProcess
listening = re.compile(r"pid ([0-9]+)")
server = ServerProcess([sys.executable, {str(FAKE)!r}], listening)
print(server.url, flush=True)
{ending}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid, patience = int(done.stdout), 100
    while alive(pid) and (patience := patience - 1):  # it is told so by a closed pipe
        time.sleep(0.1)
    assert not alive(pid)


@pytest.mark.skipif(not REAL.exists(), reason="llama.cpp is not installed")
def test_the_real_server_decodes_as_the_reference(pair: ModelPair) -> None:
    decoder = load_decoder("llama-server", pair)
    asked = [request(k, 24, speculate) for k in (1, 4) for speculate in (True, False)]
    expected = load_decoder("reference", pair).generate(asked)
    try:
        answers = decoder.generate(asked)
    finally:
        decoder.close()  # type: ignore[attr-defined]
    assert [a.tokens for a in answers] == [e.tokens for e in expected]


@pytest.mark.skipif(not REAL.exists(), reason="llama.cpp is not installed")
def test_synthetic_acceptance_is_told_from_the_real_one(pair: ModelPair) -> None:
    for name, expected in (("llama-server", Status.PASS), ("llama-synth", Status.FAIL)):
        decoder = load_decoder(name, pair)
        try:
            verdict = greedy.identity(Subject(decoder, pair, name), PROFILES["smoke"])
        finally:
            decoder.close()  # type: ignore[attr-defined]
        assert verdict.status is expected, verdict.message
