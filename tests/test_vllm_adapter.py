"""vLLM's adapter, as far as it goes without vLLM."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness.adapters import NotInstalledError, load_decoder
from harness.adapters import vllm as adapter
from harness.adapters.vllm_heads import WIDTH, padded, wide_enough
from harness.contract import Completion, Request, Sampling
from harness.models import load_pair
from harness.pair_files import UnsupportedPairError

WIDE = {"model_type": "llama", "num_attention_heads": 2, "hidden_size": 128}
PROMPT = (1, 2, 3)


@pytest.mark.parametrize("name", ["vllm-ngram", "vllm-draft"])
def test_where_it_is_not_installed_it_says_how_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    with pytest.raises(NotInstalledError, match=r"ci/third_party --install vllm$"):
        load_decoder(name, load_pair("micro"))


def test_padded_heads_attend_as_before() -> None:
    width, heads, size, tokens = 8, 4, 16, 5
    rng = np.random.default_rng(0)
    x = rng.standard_normal((tokens, size))
    weights = {
        name: rng.standard_normal((heads * width, size) if name != "o_proj" else (size, heads * 8))
        for name in ("q_proj", "k_proj", "v_proj", "o_proj")
    }

    def attend(weights: dict[str, np.ndarray], width: int) -> np.ndarray:
        q, k, v = (
            (x @ weights[name].T).reshape(tokens, heads, width).transpose(1, 0, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        scores = np.exp(q @ k.transpose(0, 2, 1) / width**0.5)
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        return mixed.transpose(1, 0, 2).reshape(tokens, -1) @ weights["o_proj"].T

    wide = {n: padded(f"model.layers.0.self_attn.{n}.weight", w, width) for n, w in weights.items()}
    assert wide["q_proj"].shape == (heads * WIDTH, size)
    np.testing.assert_allclose(attend(wide, WIDTH), attend(weights, width), rtol=1e-6)


def test_narrow_models_are_rewritten_and_others_are_not(tmp_path: Path) -> None:
    narrow = load_pair("tiny").directory("target")
    made = wide_enough(narrow, tmp_path)
    config = json.loads((made / "config.json").read_text())
    assert config["head_dim"] == WIDTH
    assert config["rope_parameters"]["partial_rotary_factor"] == 8 / WIDTH
    before, after = (load_file(path / "model.safetensors") for path in (narrow, made))
    assert before.keys() == after.keys()
    assert np.array_equal(before["lm_head.weight"], after["lm_head.weight"])

    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    assert wide_enough(tmp_path, tmp_path) == tmp_path
    with pytest.raises(UnsupportedPairError, match="no selective scan, which mamba needs"):
        wide_enough(load_pair("tiny-mamba").directory("target"), tmp_path)
    with pytest.raises(UnsupportedPairError, match="gpt2 cannot be padded"):
        wide_enough(load_pair("tiny-gpt2").directory("target"), tmp_path)


def test_a_request_in_the_words_of_vllm() -> None:
    sampling = Sampling(temperature=0.5, top_k=3, top_p=0.9, min_new_tokens=2)
    request = Request(prompt=PROMPT, max_new_tokens=4, sampling=sampling, seed=7, eos=(5,))
    found = adapter.arguments(request)
    assert found["stop_token_ids"] == [5]
    assert found["ignore_eos"]
    assert found["min_tokens"] == 2
    assert (found["temperature"], found["top_k"], found["top_p"]) == (0.5, 3, 0.9)
    assert found["seed"] == 7
    assert found["logprobs"] is None
    assert "top_k" not in adapter.arguments(Request(prompt=PROMPT, max_new_tokens=4))


class Engine:
    """Answers with what it was built for, and breaks where it is told to."""

    def __init__(self, arguments: dict[str, object]) -> None:
        speculation = arguments.get("speculative_config")
        assert speculation is None or isinstance(speculation, dict)
        self.k = speculation["num_speculative_tokens"] if speculation else 0
        self.stopped = False

    def ask(self, requests: Sequence[Request]) -> list[Completion] | str | adapter._Broken:
        if requests[0].max_new_tokens == 13:
            return adapter._Broken("it broke")
        if requests[0].max_new_tokens == 14:
            return "no such thing"
        return [Completion(tokens=[self.k, r.prompt[0]], finish_reason="length") for r in requests]

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> adapter.VllmDecoder:
    monkeypatch.setattr(adapter, "_Engine", Engine)
    monkeypatch.setattr(adapter.metadata, "version", lambda name: "0")
    return adapter.VllmDecoder(load_pair("tiny"), {}, tempfile.TemporaryDirectory())


def asked(prompt: int, k: int | None, length: int = 2) -> Request:
    if k is None:
        return Request(prompt=(prompt,), max_new_tokens=length, speculate=False)
    return Request(prompt=(prompt,), max_new_tokens=length, draft_tokens=k)


def test_requests_of_every_k_are_answered_in_their_order(decoder: adapter.VllmDecoder) -> None:
    requests = [asked(5, 2), asked(6, None), asked(7, 1), asked(8, 2)]
    answers = [completion.tokens for completion in decoder.generate(requests)]
    assert answers == [[2, 5], [0, 6], [1, 7], [2, 8]]
    assert decoder.generate([]) == []


def test_few_engines_are_kept_those_that_were_used_last(decoder: adapter.VllmDecoder) -> None:
    for k in range(1, adapter.MOST_ENGINES + 1):
        decoder.generate([asked(1, k)])
    first, second = (decoder._engines[k] for k in (1, 2))
    decoder.generate([asked(1, 1)])
    decoder.generate([asked(1, None)])
    assert len(decoder._engines) == adapter.MOST_ENGINES
    assert second.stopped
    assert not first.stopped
    decoder.close()
    assert first.stopped


def test_an_engine_that_broke_is_built_anew_one_that_refused_is_not(
    decoder: adapter.VllmDecoder,
) -> None:
    decoder.generate([asked(1, 1)])
    before = decoder._engines[1]
    with pytest.raises(ValueError, match="no such thing"):
        decoder.generate([asked(1, 1, 14)])
    assert decoder._engines[1] is before
    with pytest.raises(RuntimeError, match="it broke"):
        decoder.generate([asked(1, 1, 13)])
    assert decoder.generate([asked(1, 1)])[0].tokens == [1, 1]
    assert decoder._engines[1] is not before


def test_a_draft_of_another_width_is_not_taken() -> None:
    with pytest.raises(UnsupportedPairError, match="no draft of 80 ids for a target of 64"):
        adapter.draft(load_pair("tiny-padded"))
