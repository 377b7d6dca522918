"""Many servers of one model: who gets a request, what is sent again, and what is told of it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from shapes import Handler, ShapeServer
from test_http_faults import PIECE, Fault, choice, cut_short, hung_up, status, stream_of, whole

from harness import record
from harness.adapters import DecoderError, http_client, load_decoder
from harness.adapters.http import HttpDecoder, endpoint
from harness.adapters.http_client import Server, ServerError
from harness.bench.measure import Settings, Trial, measure
from harness.bench.retries import with_retries
from harness.bench.workload import Prompt
from harness.checks import greedy, smoke
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Request, Sampling
from harness.models import load_pair
from harness.report.retries import TITLE
from harness.verdict import Status

load = functools.cache(load_pair)
GREEDY = Request(prompt=(11, 22, 33), max_new_tokens=4)
SEEDED = msgspec.structs.replace(GREEDY, sampling=Sampling(temperature=1.0), seed=5)
UNSEEDED = msgspec.structs.replace(SEEDED, seed=None)
TIMEOUT = 1.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "FIRST_PAUSE", 0.001)


@pytest.fixture
def servers() -> Iterator[tuple[ShapeServer, ShapeServer]]:
    with ShapeServer("vllm") as one, ShapeServer("vllm") as two:
        for server in (one, two):
            server.decoder("tiny")  # loaded before anything is timed
        yield one, two


def urls(servers: tuple[ShapeServer, ...]) -> str:
    return ",".join(server.url for server in servers)


def connect(servers: tuple[ShapeServer, ...], **options: float | str) -> HttpDecoder:
    return endpoint(load("tiny"), urls(servers), api="vllm", **options)  # type: ignore[arg-type]


def asked(servers: tuple[ShapeServer, ...]) -> list[int]:
    return [len(server.asked) for server in servers]


def slow(handler: Handler) -> None:
    time.sleep(TIMEOUT + 0.5)
    handler.close_connection = True


def test_the_requests_are_shared_and_answered_in_order(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    decoder = connect(servers)
    requests = [msgspec.structs.replace(GREEDY, prompt=(i, 2, 3)) for i in range(24)]
    before = asked(servers)
    found = decoder.generate(requests)
    alone = load_decoder("reference", load("tiny")).generate(requests)
    assert [one.tokens for one in found] == [one.tokens for one in alone]
    shares = [now - then for now, then in zip(asked(servers), before, strict=True)]
    assert sum(shares) == 24
    assert min(shares) > 0
    assert decoder.retries == 0
    assert decoder.versions["endpoints"] == "2 of 2"


def test_no_server_gets_more_at_a_time_than_it_may(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    lock, now, most = threading.Lock(), [0, 0], [0, 0]

    def counting(number: int) -> Fault:
        def fault(handler: Handler) -> None:
            with lock:
                now[number] += 1
                most[number] = max(most[number], now[number])
            time.sleep(0.02)
            with lock:
                now[number] -= 1
            handler.send(200, choice())

        return fault

    decoder = connect(servers, concurrency=3)
    for number, server in enumerate(servers):
        server.faults.extend([counting(number)] * 30)
    decoder.generate([GREEDY] * 30)
    assert most == [3, 3]


@pytest.mark.parametrize("request_", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    "fault",
    [hung_up, cut_short, slow, status(500), status(502), status(504)],
    ids=["drops", "cut", "slow", "500", "502", "504"],
)
def test_a_settled_answer_may_be_asked_for_again(
    servers: tuple[ShapeServer, ShapeServer], fault: Fault, request_: Request
) -> None:
    """By another server; and it is counted."""
    decoder = connect(servers, timeout=TIMEOUT)
    expected = decoder.generate([request_])
    before = asked(servers)
    for server in servers:  # whichever is asked first
        server.faults.append(fault)
    assert decoder.generate([request_]) == expected
    assert decoder.retries == 2
    assert sum(asked(servers)) == sum(before) + 3


@pytest.mark.parametrize("fault", [hung_up, slow, status(500)], ids=["drops", "slow", "500"])
def test_one_that_is_drawn_anew_may_not(
    servers: tuple[ShapeServer, ShapeServer], fault: Fault
) -> None:
    """A slow answer is a long one: to draw another in its place would change the law."""
    decoder = connect(servers, timeout=TIMEOUT)
    before = asked(servers)
    for server in servers:
        server.faults.append(fault)
    with pytest.raises(ServerError, match="it is not sent again: sampled without a seed"):
        decoder.generate([UNSEEDED])
    assert sum(asked(servers)) == sum(before) + 1
    assert decoder.retries == 0


@pytest.mark.parametrize("code", [429, 503])
def test_but_one_that_was_turned_away_was_not_drawn_yet(
    servers: tuple[ShapeServer, ShapeServer], code: int
) -> None:
    decoder = connect(servers)
    for server in servers:
        server.faults.append(status(code, Retry_After="0"))
    assert len(decoder.generate([UNSEEDED])[0].tokens) == 4
    assert decoder.retries == 1


def test_a_server_that_stays_busy_is_left_for_another(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    decoder = connect(servers)
    servers[0].faults.extend([status(503, "no slot")] * 100)
    assert len(decoder.generate([UNSEEDED])[0].tokens) == 4
    servers[1].faults.extend([status(503, "no slot")] * 100)
    with pytest.raises(ServerError, match=r"HTTP 503: no slot \(asked 6 times"):
        decoder.generate([GREEDY])


def test_an_answer_that_makes_no_sense_is_one_and_is_not_asked_for_again(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    decoder = connect(servers)
    before = sum(asked(servers))
    for body, words in (
        (b'{"choices": [{"token_ids": [1, 2', "not what this API sends"),
        (choice(token_ids=[1, 64]), "token 64 is outside the vocabulary 0..63"),
    ):
        for server in servers:
            server.faults.clear()
            server.faults.append(whole(body))
        with pytest.raises(ServerError, match=words) as caught:
            decoder.generate([GREEDY])
        assert str(caught.value).startswith(servers[0].url)
        assert servers[1].faults  # was not asked
    assert sum(asked(servers)) == before + 2


def test_not_for_ever(servers: tuple[ShapeServer, ShapeServer]) -> None:
    decoder = connect(servers)
    for server in servers:
        server.faults.extend([status(500)] * 10)
    with pytest.raises(ServerError, match=r"HTTP 500: out of memory \(sent 3 times\)"):
        decoder.generate([GREEDY])


def test_retries_are_what_is_asked_for(servers: tuple[ShapeServer, ShapeServer]) -> None:
    none = connect(servers, retries=0)
    servers[0].faults.append(status(500))
    with pytest.raises(ServerError, match=r"HTTP 500: out of memory$"):
        none.generate([GREEDY])
    one_server = connect(servers[:1], retries=1)
    servers[0].faults.append(hung_up)
    assert len(one_server.generate([GREEDY])[0].tokens) == 4
    assert "endpoints" not in one_server.versions


def test_one_that_is_down_is_left_out_with_a_word(
    servers: tuple[ShapeServer, ShapeServer], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShapeServer("vllm") as gone:
        pass
    decoder = connect((gone, *servers))
    assert f"note: left out: cannot reach {gone.url}" in capsys.readouterr().err
    assert decoder.versions["endpoints"].startswith(f"2 of 3; left out: cannot reach {gone.url}")
    assert smoke.wired(Subject(decoder, load("tiny"), "http://"), PROFILES["smoke"]).passed


def test_one_that_goes_down_is_left_out_and_nothing_is_lost(
    servers: tuple[ShapeServer, ShapeServer], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShapeServer("vllm") as gone:
        decoder = connect((gone, *servers))
    found = decoder.generate([UNSEEDED] * 30)
    assert [len(one.tokens) for one in found] == [4] * 30
    assert capsys.readouterr().err.count(f"note: left out: cannot reach {gone.url}") == 1
    assert decoder.versions["endpoints"].startswith("2 of 3; left out: cannot reach")
    assert decoder.retries >= 1
    assert [t for piece in decoder.stream(GREEDY) for t in piece]


def test_all_down_is_an_error_and_one_that_is_back_is_found() -> None:
    with ShapeServer("vllm") as one, ShapeServer("vllm") as two:
        decoder = connect((one, two))
        port = two.server_address[1]
    with pytest.raises(ServerError, match="is the server up"):
        decoder.generate([GREEDY])
    with pytest.raises(DecoderError, match="is the server up"):
        load_decoder(urls((one, two)), load("tiny"), {"api": "vllm"})
    with ShapeServer("vllm", port=port):
        assert len(decoder.generate([GREEDY])[0].tokens) == 4
        assert decoder.versions["endpoints"].startswith("1 of 2")


def test_another_model_behind_one_of_them_is_an_error_that_names_it() -> None:
    with (
        ShapeServer("vllm") as right,
        ShapeServer("vllm", pair="tiny-gpt2") as wrong,
        pytest.raises(DecoderError) as caught,
    ):
        load_decoder(urls((right, wrong)), load("tiny"), {"api": "vllm"})
    words = f"cannot be built: {wrong.url} does not decode with the target of the pair tiny"
    assert words in str(caught.value)


def test_what_one_of_them_refuses_is_not_declared() -> None:
    with ShapeServer("vllm") as one, ShapeServer("vllm") as picky:
        picky.refuses = {"min_p"}
        decoder = connect((one, picky))
    assert "min_p" not in decoder.capabilities
    assert "logit_bias" in decoder.capabilities


def test_a_server_is_named_once() -> None:
    with pytest.raises(DecoderError, match="http://a:1 is named twice"):
        load_decoder("http://a:1, http://a:1", load("tiny"))


def test_a_stream_that_was_begun_is_not_sent_again(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    decoder = connect(servers)
    for server in servers:
        server.faults.append(stream_of(PIECE, end=False))
    with pytest.raises(ServerError, match="the connection broke"):
        list(decoder.stream(GREEDY))
    assert decoder.retries == 0


def test_pauses_grow_up_to_a_cap_and_are_the_same_in_a_run_that_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    first, again, other = (Server(f"http://{name}:1", 1) for name in "aab")
    pauses = [first.pause(attempt) for attempt in range(12)]
    assert pauses == [again.pause(attempt) for attempt in range(12)]
    assert pauses != [other.pause(attempt) for attempt in range(12)]
    for attempt, pause in enumerate(pauses):
        most = min(http_client.LONGEST_PAUSE, http_client.FIRST_PAUSE * 2**attempt)
        assert most / 2 <= pause <= most
    assert all(7 <= first.pause(attempt, said=7.0) <= 8 for attempt in range(12))


def test_checks_and_rows_say_what_was_sent_again(
    servers: tuple[ShapeServer, ShapeServer],
) -> None:
    decoder = endpoint(load("tiny"), urls(servers), api="vllm", plain=urls(servers))
    subject = Subject(decoder, load("tiny"), urls(servers))
    servers[0].faults.append(status(500))
    assert greedy.identity(subject, PROFILES["smoke"]).passed
    assert subject.retries == 1
    prompt = Prompt("chat", "chat-1", (1, 2, 3))
    trials = [Trial("http", prompt, repeat, "plain") for repeat in range(2)]
    settings = Settings(max_new_tokens=4, draft_tokens=4, vocab_size=64)

    def faulty(*_: object) -> tuple[str, dict[str, object]]:
        return "", {}

    rows = with_retries(measure({"http": decoder}, trials, settings, faulty), {"http": decoder})
    assert next(rows).retries == 0
    servers[0].faults.append(hung_up)
    servers[1].faults.append(hung_up)
    assert next(rows).retries == 2


COUNTING = """
from harness.adapters.reference import EngineDecoder, engine

class Counting:
    retries = 0

    def __init__(self, decoder):
        self.decoder, self.capabilities = decoder, decoder.capabilities

    def generate(self, requests):
        self.retries += 2
        return self.decoder.generate(requests)

def build(pair):
    return Counting(engine(pair))
"""


def test_the_record_of_the_suites_and_its_report_say_it(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    root, file = Path(__file__).parent.parent, tmp_path / "record.jsonl"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    suite, options = str(root / "suites" / "test_greedy.py"), ["--pair", "tiny", "-q"]
    what = ["--decoder", "counting:build", "--results", str(file), "-k", "identity"]
    run("pytest", "-c", str(root / "pyproject.toml"), suite, *options, *what)
    (row,) = record.read(file).verdicts
    assert row.verdict.status is Status.PASS
    assert row.retries > 0
    assert row.retries % 2 == 0
    told = run("harness.report", "--from", str(file))
    assert TITLE in told
    assert f"counting:build: {row.retries} requests, in 1 checks" in told
