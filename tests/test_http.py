"""Decoders behind a URL: each API's shape is decoded right, streamed, cancelled, and judged."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from shapes import SHAPES, Handler, K, ShapeServer
from strategies import GREEDY, HOT, examples
from strategies import requests as drawn

from harness.adapters import load_decoder
from harness.adapters.http import HttpDecoder, endpoint
from harness.adapters.http_apis import APIS
from harness.adapters.http_apis.llama_cpp import LARGEST_SEED, unmistakable
from harness.adapters.http_apis.vllm import Vllm
from harness.checks import arms_alone, batching, greedy, logprobs, metrics, smoke, streaming
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import CAPABILITIES, Request, Sampling
from harness.models import load_pair
from harness.verdict import Status

load = functools.cache(load_pair)
right = functools.cache(lambda: load_decoder("reference", load("tiny")))
GREEDY_REQUEST = Request(prompt=(1, 2, 3), max_new_tokens=8)
BUDGET = PROFILES["smoke"]
CHECKS = {
    "rows": batching.rows,
    "logprobs": logprobs.values,
    "metrics": metrics.identities,
    "pieces": streaming.pieces,
    "cancel": streaming.cancel,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, tuple[ShapeServer, ShapeServer]]]:
    """One with speculation and one without, of every API."""
    found = {api: (ShapeServer(api), ShapeServer(api, speculate=False)) for api in SHAPES}
    yield found
    for pair in found.values():
        for server in pair:
            server.__exit__()


@pytest.fixture(params=SHAPES)
def decoder(
    request: pytest.FixtureRequest, servers: dict[str, tuple[ShapeServer, ShapeServer]]
) -> Iterator[tuple[str, HttpDecoder]]:
    speculative, plain = servers[request.param]
    found = endpoint(load("tiny"), speculative.url, api=request.param, plain=plain.url)
    yield request.param, found
    found.close()


def test_every_api_has_a_shape() -> None:
    assert set(APIS) == set(SHAPES)


@pytest.mark.parametrize("temperatures", [GREEDY, HOT], ids=["greedy", "hot"])
def test_answers_and_streams_are_those_of_what_decodes_behind_it(
    decoder: tuple[str, HttpDecoder], temperatures: object
) -> None:
    """Whatever is declared is asked for, and arrives as it was asked."""
    api, subject = decoder

    @examples(6)
    @given(drawn(64, temperatures, declared=subject.capabilities))
    def agrees(request: Request) -> None:
        request = msgspec.structs.replace(request, draft_tokens=K)
        expected = right().generate([_as_sent(api, request)])[0]
        got = subject.generate([request])[0]
        streamed = [token for piece in subject.stream(request) for token in piece]
        if request.sampling.greedy or request.seed is not None:
            assert (got.tokens, got.finish_reason) == (expected.tokens, expected.finish_reason)
            if not request.logprobs:  # a stream with them is decoded by another path here
                assert streamed == expected.tokens
        if request.logprobs:
            assert got.logprobs == pytest.approx(expected.logprobs, abs=1e-5)

    agrees()


def _as_sent(api: str, request: Request) -> Request:
    if api == "llama.cpp" and request.seed is not None:
        return msgspec.structs.replace(request, seed=request.seed % (LARGEST_SEED + 1))
    return request


def test_every_api_is_wired(decoder: tuple[str, HttpDecoder]) -> None:
    api, found = decoder
    verdict = smoke.wired(Subject(found, load("tiny"), "http://", {"api": api}), BUDGET)
    assert verdict.passed, str(verdict)


def test_a_server_whose_weights_are_elsewhere(
    servers: dict[str, tuple[ShapeServer, ShapeServer]],
) -> None:
    """Nothing can be asked of the target: the arms are compared."""
    speculative, plain = servers["vllm"]
    pair = load_pair(vocab_size=64)
    found = endpoint(pair, speculative.url, api="vllm", plain=plain.url)
    verdict = arms_alone.greedy(Subject(found, pair, "http://"), BUDGET)
    assert verdict.status is Status.PASS, str(verdict)
    found.close()


@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass_through_the_door(
    servers: dict[str, tuple[ShapeServer, ShapeServer]], name: str
) -> None:
    """By the API that declares the most."""
    speculative, plain = servers["llama.cpp"]
    found = endpoint(load("tiny"), speculative.url, api="llama.cpp", plain=plain.url)
    verdict = CHECKS[name](Subject(found, load("tiny"), "http://"), BUDGET)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("api", SHAPES)
def test_a_wrong_decoder_behind_it_is_found(api: str) -> None:
    """Its last token is another one; first ones are asked of its plain arm."""
    with ShapeServer(api, "decoders:last_token") as server, ShapeServer(api) as right_server:
        found = endpoint(load("tiny"), right_server.url, api=api, plain=right_server.url)
        found._speculative.apis[0].server.url = server.url
        verdict = greedy.identity(Subject(found, load("tiny"), server.url, {"api": api}), BUDGET)
    assert verdict.status is Status.FAIL
    assert "speculation is not to blame" not in verdict.message


def test_capabilities_are_known_and_as_declared(decoder: tuple[str, HttpDecoder]) -> None:
    api, found = decoder
    assert found.capabilities <= set(CAPABILITIES)
    assert "plain" in found.capabilities
    assert ("stream" in found.capabilities) == (api != "openai")
    assert ("batch" in found.capabilities) == (api != "openai")
    assert "rounds" not in found.capabilities
    assert found.versions


def test_without_a_second_server_there_is_no_plain_arm(
    servers: dict[str, tuple[ShapeServer, ShapeServer]],
) -> None:
    found = endpoint(load("tiny"), servers["vllm"][0].url, api="vllm", concurrency=1)
    assert not {"plain", "batch"} & found.capabilities
    with pytest.raises(ValueError, match="plain=URL"):
        found.generate([msgspec.structs.replace(GREEDY_REQUEST, speculate=False)])


def test_options_are_handed_on(servers: dict[str, tuple[ShapeServer, ShapeServer]]) -> None:
    server = servers["vllm"][0]
    options = {"body.priority": 3, "without": "seed,top_k", "also": "logprobs"}
    found = endpoint(load("tiny"), f"{server.url}/{{pair}}/v1", api="vllm", **options)  # type: ignore[arg-type]
    assert "logprobs" in found.capabilities
    assert not {"seed", "top_k"} & found.capabilities
    found.generate([GREEDY_REQUEST])
    assert server.asked[-1]["priority"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api": "ollama"}, "known are openai, llama.cpp"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"without": "speed"}, "unknown capability 'speed'"),
        ({"token_from": "NO_SUCH_VARIABLE"}, "no such environment variable"),
        ({"model": "other"}, "serves the models tiny"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    servers: dict[str, tuple[ShapeServer, ShapeServer]], options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        endpoint(load("tiny"), servers["vllm"][0].url, **({"api": "vllm"} | options))  # type: ignore[arg-type]


def test_a_token_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "s3cret")
    seen = []

    def answer(handler: Handler) -> None:
        seen.append(handler.headers["Authorization"])
        handler.send(401, {"error": {"message": "who are you?"}})

    with ShapeServer("vllm") as server:
        server.faults.append(answer)
        with pytest.raises(ValueError, match="who are you") as caught:
            endpoint(load("tiny"), server.url, api="vllm", token_from="SERVER_TOKEN")
    assert seen == ["Bearer s3cret"]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("api", ["llama.cpp", "vllm", "sglang"])
def test_closing_a_stream_closes_the_connection(api: str) -> None:
    """A server that goes on would write into a closed pipe, and notice."""
    with ShapeServer(api) as server:
        found = endpoint(load("tiny"), server.url, api=api)

        def endless(handler: Handler) -> None:
            shape, body = handler.server.shape, server.asked[-1]
            request = msgspec.structs.replace(shape.request(body), max_new_tokens=10**6)

            def pieces() -> Iterator[object]:
                while not server.cancelled.is_set():
                    time.sleep(0.01)
                    yield right().generate([GREEDY_REQUEST])[0]

            handler.stream(shape.events(body, request, pieces()))  # type: ignore[arg-type]

        server.faults.append(endless)
        stream = found.stream(msgspec.structs.replace(GREEDY_REQUEST, max_new_tokens=100))
        assert next(iter(stream))
        stream.close()  # type: ignore[attr-defined]
        assert server.cancelled.wait(30)
        assert (
            found.generate([GREEDY_REQUEST])[0].tokens
            == right().generate([GREEDY_REQUEST])[0].tokens
        )


def test_a_biased_token_is_banned_by_each_api_s_own_means(
    decoder: tuple[str, HttpDecoder],
) -> None:
    _, found = decoder
    tokens = found.generate([GREEDY_REQUEST])[0].tokens
    sampling = Sampling(logit_bias={tokens[0]: float("-inf")})
    banned = found.generate([msgspec.structs.replace(GREEDY_REQUEST, sampling=sampling)])[0]
    assert banned.tokens[0] != tokens[0]


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        (["<1>", "<12>", "<2>"], True),
        (["a", "b", "c"], True),
        (["a", "ab", "b"], False),
        (["<1", "<12"], False),
        (["<1>", "<1>"], False),
        (["<1>", ""], False),
        (["<1>", "<>1>"], False),
        (["aa", "ab"], False),
    ],
)
def test_texts_that_may_stand_for_ids(texts: list[str], answer: bool) -> None:
    assert unmistakable(texts) is answer


@pytest.mark.parametrize("arm", ["speculative", "plain"])
def test_what_either_server_refuses_is_not_declared(arm: str) -> None:
    """As vLLM refuses some parameters where it speculates."""
    with ShapeServer("vllm") as one, ShapeServer("vllm", speculate=False) as two:
        picky = one if arm == "speculative" else two
        picky.refuses = {"min_p", "logit_bias"}
        found = endpoint(load("tiny"), one.url, api="vllm", plain=two.url)
        assert Vllm.capabilities - found.capabilities == {"min_p", "logit_bias"}
