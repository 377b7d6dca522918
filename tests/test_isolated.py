"""``--isolate``: whatever a decoder does is an ERROR in time, and the next call is answered."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from runaway import WAYS

from harness.adapters import DecoderError, find_factory, load_decoder
from harness.adapters.stdio import StdioDecoder
from harness.checks.subject import Refused, Subject
from harness.contract import Request
from harness.models import load_pair
from harness.verdict import Status

HERE = Path(__file__).parent
ROOT = HERE.parent
GOOD = Request(prompt=(1, 2, 3), max_new_tokens=4)
load = functools.cache(load_pair)


def bad(way: str) -> Request:
    return Request(prompt=(13, WAYS.index(way), 3), max_new_tokens=4)


def runaway(**options: str) -> StdioDecoder:
    given = {"time_limit": "60", "memory_limit": "2", **options}
    decoder = load_decoder("isolated: runaway:build", load("tiny"), given)
    assert isinstance(decoder, StdioDecoder)
    return decoder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioDecoder]:
    """One decoder for all: each call that ends a child is followed by one that starts another."""
    decoder = runaway(directory=str(tmp_path_factory.mktemp("processes")))
    yield decoder
    decoder.close()


@pytest.fixture
def decoder(shared: StdioDecoder) -> Iterator[StdioDecoder]:
    yield shared
    shared.timeout = 60


def alive(process: int) -> bool:
    state = ["ps", "-o", "stat=", "-p", str(process)]
    found = subprocess.run(state, capture_output=True, text=True, check=False).stdout.strip()
    return bool(found) and not found.startswith("Z")


def test_an_isolated_decoder_answers_as_it_does_in_here(decoder: StdioDecoder) -> None:
    here = load_decoder("reference", load("tiny"))
    assert decoder.capabilities == here.capabilities  # exact_law is declared, and not carried
    [one], [other] = decoder.generate([GOOD]), here.generate([GOOD])
    assert (one.tokens, one.finish_reason, one.rounds) == (
        other.tokens,
        other.finish_reason,
        other.rounds,
    )
    assert [token for piece in decoder.stream(GOOD) for token in piece] == other.tokens


@pytest.mark.parametrize(
    ("way", "limit", "words"),
    [
        ("hangs", 1, "the child gave no answer within 1 s"),
        ("spins", 1, "the child gave no answer within 1 s"),
        ("ignores signals", 1, "the child gave no answer within 1 s"),
        ("segfaults", 60, "the child was ended by SIGSEGV"),
        ("sys.exit", 60, "the child "),  # exited, or is about to
        ("os._exit", 60, "the child exited with status 0"),
        ("interrupts", 60, "the child "),
        ("eats memory", 60, "MemoryError"),
        ("eats memory in a child", 60, "GiB, the limit is 2"),
        ("writes to the door", 60, "the child's answer is not in the protocol"),
        ("threads", 60, "can't start new thread"),
    ],
)
def test_what_a_decoder_does_to_its_process_is_an_error_of_that_call(
    decoder: StdioDecoder, way: str, limit: float, words: str
) -> None:
    subject = Subject(decoder, load("tiny"), "isolated: runaway:build")
    assert len(subject.ask_one(GOOD).tokens) == 4
    decoder.timeout = limit
    with pytest.raises(Refused, match="the decoder raised ChildError") as caught:
        subject.ask([bad(way)])
    assert words in str(caught.value)
    assert caught.value.requests == [bad(way)]


@pytest.mark.parametrize("way", ["prints", "rewrites the harness"])
def test_what_reaches_nobody_is_no_error(decoder: StdioDecoder, way: str) -> None:
    [answer], [right] = (
        of.generate([bad(way)]) for of in (decoder, load_decoder("reference", load("tiny")))
    )
    assert answer.tokens == right.tokens
    assert Status.FAIL.value == "FAIL"


@pytest.mark.parametrize(
    ("way", "words"), [("streams", "there is no end"), ("streams nothing", "within")]
)
def test_a_stream_without_an_end_is_an_error(decoder: StdioDecoder, way: str, words: str) -> None:
    subject = Subject(decoder, load("tiny"), "isolated: runaway:build")
    decoder.timeout = 2
    with pytest.raises(Refused, match=words):
        subject.stream(bad(way))
    decoder.timeout = 60
    assert [token for piece in subject.stream(GOOD) for token in piece]


def test_a_process_that_went_far_away_ends_with_its_child(tmp_path: Path) -> None:
    decoder = runaway(directory=str(tmp_path))
    decoder.timeout = 3
    with pytest.raises(RuntimeError, match="no answer within 3 s"):
        decoder.generate([bad("hangs, and leaves a process far away")])
    assert not alive(int((tmp_path / "waiting").read_text()))
    decoder.close()


def test_a_child_ends_with_the_harness_even_where_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from test_isolated import runaway, bad
runaway(directory={str(tmp_path)!r}).generate([bad("hangs")])
"""
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=os.environ)
    for _ in range(1200):
        if found := [path.name for path in tmp_path.iterdir()]:
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    for _ in range(100):
        if not alive(int(found[0])):
            break
        time.sleep(0.1)
    assert not alive(int(found[0]))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("isolated: nothing", {}, "unknown decoder 'nothing'"),
        ("isolated: cmd: cat", {}, "'cmd: cat' does not run in this process"),
        ("isolated: http://127.0.0.1:1", {}, "does not run in this process"),
        ("isolated: vllm-draft", {}, "does not run in this process"),
        ("isolated: isolated: reference", {}, "does not run in this process"),
        ("isolated: reference", {"time_limit": "0"}, "time_limit is 0: it must be above 0"),
        ("isolated: reference", {"memory_limit": "much"}, "memory_limit is much"),
        ("isolated: reference", {"depth": "3"}, "does not take these options"),
        ("isolated: no_such_module:build", {}, "cannot import 'no_such_module'"),
        ("isolated: runaway:build", {"exits": "true"}, "exited with status 4"),
        ("isolated: decoders:refuses_the_pair", {}, "only for large models"),
    ],
)
def test_what_cannot_be_isolated_is_refused_in_one_line(
    name: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(DecoderError) as caught:
        load_decoder(name, load("tiny"), options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_of_the_decoder_is_imported_in_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hosted", raising=False)  # another test may have
    find_factory("isolated: hosted:troublesome")
    assert "hosted" not in sys.modules


def test_another_draft_is_loaded_from_its_directory() -> None:
    from harness.bench.drafts import with_draft

    pair = with_draft(load("tiny"), "identical")
    decoder = load_decoder("isolated: reference", pair)
    request = msgspec.structs.replace(GOOD, max_new_tokens=8)
    [answer] = decoder.generate([request])
    assert all(r.drafted == r.accepted for r in answer.rounds or [])
    assert isinstance(decoder, StdioDecoder)
    decoder.close()


def suites(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
    )


def test_the_suites_end_where_every_call_hangs() -> None:
    done = suites(
        *("suites/test_smoke.py", "suites/test_contract.py", "--isolate", "--time-limit", "1"),
        *("--decoder", "runaway:build", "--decoder-option", "always=true"),
    )
    assert done.returncode == 1
    assert "ERROR smoke.wired: the decoder raised ChildError: the child gave no" in done.stdout
    assert "ERROR contract.form" in done.stdout
    assert "load_decoder('isolated: runaway:build', pair, {" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--time-limit", "3"], "--time-limit has no effect without --isolate"),
        (["--isolate", "--memory-limit", "-1"], "--memory-limit is -1: it must be above 0"),
        (["--isolate", "--decoder", "cmd: cat"], "does not run in this process"),
        (["--isolate", "--decoder", "nothing"], "unknown decoder 'nothing'"),
    ],
)
def test_limits_that_make_no_sense_are_one_line_and_status_2(
    arguments: list[str], words: str
) -> None:
    done = suites("suites/test_smoke.py", *arguments)
    assert done.returncode == 2
    assert words in done.stdout + done.stderr
