"""Servers that fail: each way is one clear ERROR with its request; the next one is answered."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import pytest
from shapes import Handler, Json, ShapeServer

from harness.adapters import DecoderError, http_client, load_decoder
from harness.adapters.http import HttpDecoder, endpoint
from harness.checks import greedy, smoke
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject, check
from harness.contract import Request
from harness.models import load_pair
from harness.verdict import Status, Verdict

load = functools.cache(load_pair)
REQUEST = Request(prompt=(11, 22, 33), max_new_tokens=4)
TIMEOUT = 2.0
Fault = Callable[[Handler], None]


@check("http.answered")
def answered(subject: Subject) -> Verdict:
    """Whether a request is answered in the contract's form."""
    subject.ask_one(REQUEST)
    return Verdict(check="http.answered", status=Status.PASS, message="", ruled_out="silence")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "FIRST_PAUSE", 0.001)


@pytest.fixture
def server(impatient: None) -> Iterator[ShapeServer]:
    with ShapeServer("vllm") as found:
        found.decoder("tiny")  # loaded before anything is timed
        yield found


def connect(server: ShapeServer, timeout: float = 60) -> HttpDecoder:
    return endpoint(load("tiny"), server.url, api="vllm", timeout=timeout)


def subject_of(server: ShapeServer, timeout: float = 60) -> Subject:
    return Subject(connect(server, timeout), load("tiny"), server.url, {"api": "vllm"})


def status(code: int, message: str = "out of memory", **headers: str) -> Fault:
    return lambda handler: handler.send(code, {"error": {"message": message}}, **headers)


def choice(**changes: object) -> Json:
    good = {"finish_reason": "length", "token_ids": [1, 2, 3, 4]}
    return {"choices": [good | changes]}


def whole(body: Json | bytes) -> Fault:
    return lambda handler: handler.send(200, body)


def cut_short(handler: Handler) -> None:
    """Less than its header promises."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hung_up(handler: Handler) -> None:
    handler.close_connection = True


def silent(handler: Handler) -> None:
    time.sleep(TIMEOUT + 1)
    handler.close_connection = True


def dripping(handler: Handler) -> None:
    """A byte now and then: each read is in time, the answer never is."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    drip(handler, b" ")


def headers_without_end(handler: Handler) -> None:
    """The same before the answer has begun."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    drip(handler, b"X-More: yes\r\n")


def drip(handler: Handler, part: bytes) -> None:
    for _ in range(60):
        time.sleep(0.1)
        try:
            handler.wfile.write(part)
        except OSError:
            break
    handler.close_connection = True


FAULTS: dict[str, tuple[Fault, str]] = {
    "500": (status(500), "HTTP 500: out of memory"),
    "502 in HTML": (lambda h: h.send(502, b"<html>bad gateway</html>"), "HTTP 502: <html>bad"),
    "404": (status(404, "no route"), "api="),
    "truncated JSON": (whole(b'{"choices": [{"token_ids": [1, 2'), "not what this API sends"),
    "no JSON": (whole(b"\xff\xfe hello"), "not what this API sends"),
    "wrong shape": (whole({"choices": [{"token_ids": "1 2 3"}]}), "Expected `array | null`"),
    "no choices": (whole({"object": "text_completion"}), "missing required field `choices`"),
    "two choices": (whole({"choices": [{}, {}]}), "2 choices for one prompt"),
    "no ids": (whole(choice(token_ids=None)), "no token_ids"),
    "no tokens": (whole(choice(token_ids=[])), "no tokens were generated"),
    "id beyond the vocabulary": (whole(choice(token_ids=[1, 64])), "outside the vocabulary 0..63"),
    "negative id": (whole(choice(token_ids=[-1])), "outside the vocabulary 0..63"),
    "own EOS": (whole(choice(finish_reason="stop")), "an EOS of the model's own"),
    "aborted": (whole(choice(finish_reason="abort")), "ends by 'abort'"),
    "connection cut": (cut_short, "the connection broke"),
    "hung up": (hung_up, "the connection broke"),
    "silence": (silent, "no complete answer within 2 s"),
    "dripping": (dripping, "no complete answer within 2 s"),
    "dripping headers": (headers_without_end, "no complete answer within 2 s"),
    "senseless": (status(400, "top_k must be at least 1"), "ValueError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_error_with_its_request_and_the_next_is_answered(
    server: ShapeServer, name: str
) -> None:
    fault, words = FAULTS[name]
    subject = subject_of(server, TIMEOUT if "within" in words else 60)
    server.faults.append(fault)
    verdict = answered(subject)
    assert verdict.status is Status.ERROR
    assert words in verdict.message
    assert "\n" not in verdict.message
    assert "(11, 22, 33)" in verdict.repro
    assert answered(subject).passed


def test_a_wrong_number_of_tokens_is_what_the_checks_judge(server: ShapeServer) -> None:
    """Nothing is cut or filled up on the way."""
    server_side = connect(server)
    server.faults.append(whole(choice(token_ids=[1] * 9)))
    assert len(server_side.generate([REQUEST])[0].tokens) == 9


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again(server: ShapeServer, code: int) -> None:
    decoder = connect(server)
    expected = decoder.generate([REQUEST])
    asked = len(server.asked)
    server.faults += [status(code), status(code, Retry_After="0")]
    assert decoder.generate([REQUEST]) == expected
    assert len(server.asked) == asked + 3


def test_but_not_for_ever(server: ShapeServer) -> None:
    subject = subject_of(server)
    asked = len(server.asked)
    server.faults += [status(503, "no slot")] * 100
    verdict = answered(subject)
    assert verdict.status is Status.ERROR
    assert "HTTP 503: no slot (asked 6 times" in verdict.message
    assert len(server.asked) == asked + 1 + http_client.RETRIES


@pytest.mark.parametrize("later", ["3600", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_nor_for_longer_than_a_request_may_take(server: ShapeServer, later: str) -> None:
    subject = subject_of(server)
    server.faults.append(status(429, Retry_After=later))
    assert "the next try would be in" in answered(subject).message


def test_no_other_failure_is_tried_again(server: ShapeServer) -> None:
    """A server that died of a request would die of it once more."""
    subject = subject_of(server)
    for fault in (status(500), hung_up):
        asked = len(server.asked)
        server.faults.append(fault)
        assert not answered(subject).passed
        assert len(server.asked) == asked + 1


def refusal(url: str, pair: str = "tiny", api: str = "vllm") -> str:
    with pytest.raises(DecoderError) as caught:
        load_decoder(url, load(pair), {"api": api})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_server_that_is_not_up_is_said_to_be() -> None:
    with ShapeServer("vllm") as server:
        gone = server.url
    assert f"cannot reach {gone}/v1/models" in refusal(gone)
    assert "is the server up?" in refusal(gone)
    assert "is no URL" in refusal("http://127.0.0.1:port")


def test_a_server_that_dies_in_mid_run(impatient: None) -> None:
    """Its requests are errors, and the run goes on; when it is back, they are answered."""
    with ShapeServer("vllm") as server:
        subject = subject_of(server)
        assert answered(subject).passed
    for verdict in (answered(subject), smoke.wired(subject, PROFILES["smoke"])):
        assert verdict.status is Status.ERROR
        assert "is the server up?" in verdict.message


def test_a_model_with_too_few_ids_is_another_one(impatient: None) -> None:
    with ShapeServer("llama.cpp", pair="micro") as server:
        assert "knows 8 ids, the pair tiny uses 64" in refusal(server.url, api="llama.cpp")


@pytest.mark.parametrize("api", ["llama.cpp", "sglang"])
def test_other_weights_behind_the_url_are_seen_before_anything_is_judged(
    impatient: None, api: str
) -> None:
    with ShapeServer(api, "decoders:draft_alone", pair="tiny-hostile") as server:
        message = refusal(server.url, "tiny-hostile", api)
    assert "does not decode with the target of the pair tiny-hostile" in message
    assert "--pair" in message


def test_other_weights_that_come_later_are_an_error_of_the_plain_arm(impatient: None) -> None:
    """Not a failure of speculation."""
    with ShapeServer("vllm") as server, ShapeServer("vllm", speculate=False) as plain:
        found = endpoint(load("tiny"), server.url, api="vllm", plain=plain.url)
        plain.pair = "tiny-gpt2"
        subject = Subject(found, load("tiny"), server.url, {"api": "vllm", "plain": plain.url})
        verdict = smoke.wired(subject, PROFILES["smoke"])
    assert verdict.status is Status.ERROR
    assert "plain decoding is not the target's (wrong model or adapter?)" in verdict.message


def test_another_api_than_the_server_s_is_told(server: ShapeServer) -> None:
    assert "see the option api=" in refusal(server.url, api="llama.cpp")
    assert "see the option api=" in refusal(server.url, api="sglang")


def stream_of(*events: str, end: bool = True) -> Fault:
    def fault(handler: Handler) -> None:
        if end:
            handler.stream(iter(events))
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in events:
            handler.chunk(f"data: {event}\n\n".encode())
        handler.close_connection = True

    return fault


PIECE = '{"choices": [{"token_ids": [1, 2]}]}'


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (stream_of(PIECE, "[DONE]"), "the stream broke off after 2 tokens"),
        (stream_of(PIECE), "the stream broke off after 2 tokens"),
        (stream_of(PIECE, end=False), "the connection broke"),
        (stream_of(PIECE, '{"choices": [{"tok'), "not what this API sends"),
        (stream_of(PIECE, '{"error": {"message": "out of memory"}}'), "out of memory"),
        (lambda h: h.send(200, b"error: {'x': 'out of memory'}\n\n"), "out of memory"),
        (status(500), "HTTP 500: out of memory"),
        (silent, "no complete answer within 2 s"),
        (dripping, "no complete answer within 2 s"),
        (headers_without_end, "no complete answer within 2 s"),
    ],
)
def test_a_stream_that_fails_is_an_error(server: ShapeServer, fault: Fault, words: str) -> None:
    decoder = connect(server, TIMEOUT if "within" in words else 60)
    server.faults.append(fault)
    with pytest.raises(http_client.ServerError, match=words):
        list(decoder.stream(REQUEST))
    again = [token for piece in decoder.stream(REQUEST) for token in piece]
    assert again == decoder.generate([REQUEST])[0].tokens


def test_one_of_many_requests_fails_and_none_hangs(server: ShapeServer) -> None:
    subject = subject_of(server)
    server.faults += [status(500)]
    with pytest.raises(http_client.ServerError, match="HTTP 500"):
        subject.decoder.generate([REQUEST] * 20)
    assert greedy.identity(subject, PROFILES["smoke"]).passed
