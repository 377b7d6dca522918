"""OpenVINO GenAI's adapter, as far as it goes without the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.adapters import NotInstalledError, load_decoder
from harness.adapters.converted import converted
from harness.adapters.openvino import added, arguments
from harness.adapters.openvino_models import has_attention
from harness.contract import Request, Sampling
from harness.models import load_pair


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("openvino-draft", "openvino"),
        ("openvino-lookup", "openvino"),
        ("ort-draft", "onnxruntime-genai"),
        ("ort-ngram", "onnxruntime-genai"),
    ],
)
def test_absent_says_how_to_install(
    name: str, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    with pytest.raises(NotInstalledError, match=f"ci/third_party --install {environment}"):
        load_decoder(name, load_pair("tiny"))


def test_request_without_eos_ends_at_an_id_that_there_is_not() -> None:
    found = arguments(Request(prompt=(1,), max_new_tokens=3), vocab_size=8)
    assert found["eos_token_id"] == 8
    assert found["stop_token_ids"] == {8}
    assert not found["do_sample"]


def test_sampled_request() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, min_new_tokens=9)
    request = Request(prompt=(1,), max_new_tokens=3, sampling=sampling, eos=(2, 5), seed=7)
    found = arguments(request, vocab_size=8)
    assert found["stop_token_ids"] == {2, 5}
    assert found["rng_seed"] == 7
    assert found["min_new_tokens"] == 3  # it refuses more than max_new_tokens
    assert "top_k" not in found  # 0 keeps none there


def test_unseeded_requests_differ() -> None:
    request = Request(prompt=(1,), max_new_tokens=3, sampling=Sampling(temperature=1.0))
    assert len({arguments(request, 8)["rng_seed"] for _ in range(5)}) == 5


def test_last_token_of_a_step_gets_what_the_score_has_left() -> None:
    assert added(-6.0, [-1.0, -2.0, -3.0]) == -3.0
    assert added(-4.0, [-1.0, -2.0, -3.0]) == -1.0  # a score that misses two


def test_attention(tmp_path: Path) -> None:
    for text, there in (('{"num_attention_heads": 4}', True), ('{"state_size": 8}', False)):
        (tmp_path / "config.json").write_text(text)
        assert has_attention(tmp_path) == there


def test_converted_is_made_once(tmp_path: Path) -> None:
    calls = []

    def convert(source: Path, made: Path) -> None:
        calls.append(source)
        (made / "model").write_text("weights")

    source = tmp_path / "target"
    source.mkdir()
    for _ in range(2):
        path = converted(source, "other-1", convert)
        assert (path / "model").read_text() == "weights"
    assert calls == [source]


def test_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def convert(source: Path, made: Path) -> None:
        (made / "model").write_text("half of it")
        raise NotImplementedError

    source = tmp_path / "target"
    source.mkdir()
    with pytest.raises(NotImplementedError):
        converted(source, "other-1", convert)
    assert list(tmp_path.iterdir()) == [source]
