"""onnxruntime-genai's adapter, as far as it goes without the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.adapters.onnx_models import _rewrite, width
from harness.adapters.onnxruntime_genai import arguments, joined, metrics
from harness.contract import Request, Sampling
from harness.models import load_pair


@pytest.mark.parametrize("name", ["tiny", "micro", "tiny-window"])
@torch.inference_mode()
def test_rewritten_model_computes_the_same(name: str, tmp_path: Path) -> None:
    model = load_pair(name).target
    model.save_pretrained(tmp_path)
    config: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    _rewrite(tmp_path, config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    rewritten = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert rewritten.config.head_dim % 16 == 0
    ids = torch.arange(24)[None] % config["vocab_size"]
    ours, theirs = (m(ids).logits.numpy() for m in (model, rewritten))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_no_layer_is_as_wide_as_the_vocabulary() -> None:
    assert width(64, {9, 3}, 49152) == 64  # taken as it is
    assert width(8, {4, 2}, 8) == 16
    assert width(8, {4, 2}, 64) == 48  # not 16, not 32


def test_arguments() -> None:
    sampling = Sampling(temperature=0.5, min_new_tokens=2)
    request = Request(prompt=(1, 2, 3), max_new_tokens=5, sampling=sampling, seed=7)
    found = arguments(request, vocab_size=8)
    assert (found["min_length"], found["max_length"]) == (5, 8)
    assert found["top_k"] == 8  # all: its default is another one
    assert found["random_seed"] == 7
    greedy = arguments(Request(prompt=(1,), max_new_tokens=5), vocab_size=8)
    assert greedy == {"max_length": 6, "min_length": 0, "do_sample": False}


def test_metrics() -> None:
    stats = {
        "target_forward_passes": 4,
        "standard_fallback_steps": 1,
        "draft_tokens_evaluated": 10,
        "draft_tokens_accepted": 9,
        "acceptance_rate": 0.9,
    }
    found = metrics(stats)
    assert (found.target_calls, found.drafted, found.accepted) == (5, 10, 9)
    assert metrics(dict.fromkeys(stats, 0)).target_calls is None


def test_joined(tmp_path: Path) -> None:
    for name in ("a", "b", "both"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        config = {"model": {"type": "llama", "decoder": {"filename": "model.onnx", "name": name}}}
        (tmp_path / name / "genai_config.json").write_text(json.dumps(config))
    made = joined(tmp_path / "a", tmp_path / "b")
    model = json.loads((made / "genai_config.json").read_text())["model"]
    assert model["type"] == "speculative"
    assert model["decoder"] == {"filename": "target/model.onnx", "name": "a"}
    assert model["draft"] == {"filename": "draft/model.onnx", "name": "b"}
    assert (made / "draft").resolve() == tmp_path / "b"
