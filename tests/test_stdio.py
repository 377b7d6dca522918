"""Decoders in a child process: right ones answer as they do in here, hostile ones are ERRORs."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from harness.adapters import DecoderError, child, load_decoder
from harness.adapters.child import ChildError
from harness.adapters.stdio import StdioDecoder
from harness.checks import smoke
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject, check
from harness.contract import Request, Sampling
from harness.models import load_pair
from harness.pair_files import UnsupportedPairError
from harness.verdict import Status, Verdict

HERE = Path(__file__).parent
ROOT = HERE.parent
load = functools.cache(load_pair)
GOOD = Request(prompt=(1, 2, 3), max_new_tokens=2)
BAD = Request(prompt=(13, 2, 3), max_new_tokens=2)
Hostile = Callable[..., StdioDecoder]


def command(way: str, directory: Path) -> str:
    return f"cmd: {shlex.join([sys.executable, str(HERE / 'hostile.py'), way, str(directory)])}"


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Hostile]:
    """A decoder that misbehaves; at the end none of its processes is left."""
    made: list[StdioDecoder] = []

    def build(way: str) -> StdioDecoder:
        decoder = load_decoder(command(way, tmp_path), load("tiny"))
        assert isinstance(decoder, StdioDecoder)
        made.append(decoder)
        return decoder

    yield build
    for decoder in made:
        decoder.close()
    assert_gone(tmp_path)


def processes(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.isdigit()]


def assert_gone(directory: Path) -> None:
    """No process of a hostile child runs; what is dead and has no parent may be listed yet."""
    assert processes(directory)
    for process in processes(directory):
        state = ["ps", "-o", "stat=", "-p", process]
        for _ in range(100):
            found = subprocess.run(state, capture_output=True, text=True, check=False).stdout
            if not found.strip() or found.startswith("Z"):
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"process {process} is left: {found}")


@check("stdio.answered")
def answered(subject: Subject, request: Request) -> Verdict:
    """Whether a request is answered in the contract's form."""
    subject.ask_one(request)
    return Verdict(check="stdio.answered", status=Status.PASS, message="", ruled_out="silence")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("noise", "stdout is for the protocol alone, this is not JSON"),
        ("noise", "'Loading model...'"),
        ("exits", "the child exited with status 3; its stderr ends: out of memory"),
        ("crashes", "exited with status 1; its stderr ends: Traceback (most recent call last):"),
        ("crashes", "KeyError: 'weights'"),
        ("dies", "the child was ended by SIGSEGV"),
        ("half a line", "the child exited with status 0 in the midst of a line"),
        ("not UTF-8", "stdout is for the protocol alone, this is not JSON"),
        ("empty line", "stdout is for the protocol alone, this is not JSON"),
        ("not an object", "the child's answer is not in the protocol (Expected `object`"),
        ("other id", "the child answered message 3, not 2"),
        ("other type", "the child answered generate with piece, not with completions"),
        ("unknown type", "is not in the protocol (Invalid value 'answer' - at `$.type`)"),
        ("too few", "1 requests were answered by 0 completions"),
        ("NaN", "this is not JSON"),
        ("null", "(Expected `float`, got `null` - at `$.completions[0].logprobs[0]`)"),
        ("float token", "(Expected `int`, got `float` - at `$.completions[0].tokens[0]`)"),
        ("no finish_reason", "missing required field `finish_reason`"),
        ("fails", "the decoder raised ChildError: out of pages"),
        ("floods stderr, then exits", "exited with status 1; its stderr ends: warning"),
        ("floods stderr, then exits", "warning no more pages"),
        ("closes stdout", "the child closed its stdout"),
        ("leaves a grandchild", "the child exited with status 0"),
    ],
)
def test_a_child_that_answers_wrongly_is_an_error_and_the_next_request_is_answered(
    hostile: Hostile, way: str, words: str
) -> None:
    subject = Subject(hostile(way), load("tiny"), "cmd: hostile")
    assert answered(subject, GOOD).passed
    verdict = answered(subject, BAD)
    assert verdict.status is Status.ERROR
    assert words in verdict.message
    assert "\n" not in verdict.message
    assert "prompt=(13, 2, 3)" in verdict.repro
    assert answered(subject, GOOD).passed


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("hangs", "the child gave no answer within 0.5 s"),
        ("half a line, then hangs", "the child gave no answer within 0.5 s"),
        ("hangs with a grandchild", "the child gave no answer within 0.5 s"),
        ("closes stdin", "the child gave no answer within 0.5 s"),
        ("reads no more", "the child did not read the request within 0.5 s"),
    ],
)
def test_a_child_that_hangs_is_an_error_and_is_ended(
    hostile: Hostile, way: str, words: str
) -> None:
    decoder = hostile(way)
    subject = Subject(decoder, load("tiny"), "cmd: hostile")
    large = msgspec.structs.replace(BAD, prompt=(13,) * 100_000)  # more than a pipe holds
    decoder.timeout = 0.5
    verdict = answered(subject, large if way == "reads no more" else BAD)
    assert verdict.status is Status.ERROR
    assert words in verdict.message
    decoder.timeout = 60
    assert way == "reads no more" or answered(subject, GOOD).passed


def test_an_endless_line_is_an_error_before_memory_ends(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LONGEST", 1_000_000)
    with pytest.raises(ChildError, match="wrote a line of more than 1000000 bytes"):
        hostile("endless line").generate([BAD])


def test_what_a_child_says_unasked_is_no_answer_to_what_comes_next(hostile: Hostile) -> None:
    decoder = hostile("answers twice")
    assert len(decoder.generate([BAD])) == 1
    with pytest.raises(ChildError, match="the child answered message 1, not 2"):
        decoder.generate([GOOD])
    assert len(decoder.generate([GOOD])) == 1


def test_a_flood_on_stderr_and_a_large_request_stop_nothing(hostile: Hostile) -> None:
    decoder = hostile("floods stderr")
    large = msgspec.structs.replace(BAD, prompt=(13,) * 1_000_000, max_new_tokens=200_000)
    [completion] = decoder.generate([large])
    assert len(completion.tokens) == 200_000


@pytest.mark.parametrize(
    ("way", "error", "words"),
    [
        ("other protocol", DecoderError, "the child speaks protocol 2, this is 1"),
        ("no capabilities", DecoderError, "is not in the protocol (Expected `array`, got `null`"),
        ("not ready", DecoderError, "the child answered start with piece, not with ready"),
        ("broken", DecoderError, "no licence found"),
        ("invalid", DecoderError, "no option 'depth'"),
        ("unsupported", UnsupportedPairError, "only bigrams"),
        ("exits at start", DecoderError, "exited with status 1; its stderr ends: no licence found"),
    ],
)
def test_a_child_that_does_not_start_is_refused_in_one_line(
    hostile: Hostile, tmp_path: Path, way: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        hostile(way)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert_gone(tmp_path)


def test_unknown_capabilities_are_an_error_of_smoke(hostile: Hostile) -> None:
    subject = Subject(hostile("unknown capability"), load("tiny"), "cmd: hostile")
    verdict = smoke.wired(subject, PROFILES["smoke"])
    assert verdict.status is Status.ERROR
    assert "unknown capabilities ['telepathy']" in verdict.message


def test_a_slow_start_is_waited_for(hostile: Hostile) -> None:
    assert hostile("slow").capabilities == {"greedy"}


def test_a_child_that_does_not_stop_is_made_to(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.2)
    hostile("does not stop").close()
    assert_gone(tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cmd:", {}, 'the command is empty: give "cmd: ./my_decoder --flag"'),
        ("cmd: ./missing --flag", {}, "no program './missing' that can be run"),
        (f"cmd: {HERE}", {}, "that can be run"),
        ("cmd: 'unclosed", {}, "No closing quotation"),
        ("cmd: cat", {"forms": "onnx"}, "unknown form 'onnx': known are hf, gguf"),
        ("cmd: cat", {"forms": "3"}, "unknown form '3'"),
        ("cmd: cat", {"timeout": "soon"}, "timeout is soon: give seconds, above 0"),
        ("cmd: cat", {"timeout": "0"}, "timeout is 0: give seconds, above 0"),
        ("cmd: cat", {"line": "x"}, "is not in the protocol (Invalid value 'start'"),
        ("cmd: true", {}, "the child exited with status 0"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(
    name: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(DecoderError) as caught:
        load_decoder(name, load("tiny"), options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def suites(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments]


def test_ctrl_c_ends_the_child(tmp_path: Path) -> None:
    run = subprocess.Popen(
        suites("suites/test_smoke.py", "--decoder", command("always hangs", tmp_path)),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        # Where this run ignores it, as what a shell puts in the background does, so would that one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(1200):
        if (tmp_path / "asked").exists():
            break
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(timeout=60) == 2
    assert_gone(tmp_path)


def test_the_suites_go_on_after_a_child_has_died(tmp_path: Path) -> None:
    done = subprocess.run(
        suites(
            "suites/test_contract.py",
            "suites/test_smoke.py",
            *("--decoder", command("always hangs", tmp_path), "--decoder-option", "timeout=3"),
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ERROR smoke.wired: the decoder raised ChildError: the child gave no" in done.stdout
    assert_gone(tmp_path)
    assert len(processes(tmp_path)) >= 2  # one for every request that it hung at


@functools.cache
def hosted() -> StdioDecoder:
    path = f"PYTHONPATH={ROOT}{os.pathsep}{HERE}"
    line = shlex.join(["env", path, sys.executable, "-m", "harness.host", "hosted:engine"])
    decoder = load_decoder(f"cmd: {line}", load("tiny"), {"max_batch": "3"})
    assert isinstance(decoder, StdioDecoder)
    return decoder


def test_a_child_answers_as_the_same_decoder_does_in_here() -> None:
    requests = [
        GOOD,
        Request(prompt=(5, 6), max_new_tokens=9, eos=(7, 8), stop=((1, 2), (9,))),
        Request(
            prompt=(5, 6),
            max_new_tokens=9,
            sampling=Sampling(temperature=0.8, top_k=9, logit_bias={3: float("-inf"), 4: 1.5}),
            seed=2**32,
            logprobs=True,
        ),
        Request(prompt=(4,), max_new_tokens=5, speculate=False, draft_tokens=7),
    ]
    right = load_decoder("reference", load("tiny"))
    assert hosted().capabilities == right.capabilities
    for one, other in zip(hosted().generate(requests), right.generate(requests), strict=True):
        assert (one.tokens, one.finish_reason) == (other.tokens, other.finish_reason)
        assert one.logprobs == pytest.approx(other.logprobs)
        assert one.rounds == other.rounds


def test_streams_of_a_child_can_be_closed_and_interleaved() -> None:
    request = msgspec.structs.replace(GOOD, max_new_tokens=20)
    [whole] = hosted().generate([request])
    pieces = list(hosted().stream(request))
    assert [token for piece in pieces for token in piece] == whole.tokens
    assert len(pieces) > 1
    stream = hosted().stream(request)
    first = next(stream)
    assert hosted().generate([GOOD])[0].tokens == whole.tokens[:2]
    assert [*first, *next(stream)] == whole.tokens[: len(pieces[0] + pieces[1])]
    stream.close()
    assert list(hosted().stream(request)) == pieces


def test_a_senseless_request_is_a_value_error_and_spoils_nothing() -> None:
    with pytest.raises(ValueError, match="token id 64 is outside the vocabulary"):
        hosted().generate([Request(prompt=(64,), max_new_tokens=1)])
    with pytest.raises(ValueError, match="empty prompt"):
        list(hosted().stream(Request(prompt=(), max_new_tokens=1)))
    assert len(hosted().generate([GOOD])[0].tokens) == 2
