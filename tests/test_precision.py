"""Pairs that compute in other numbers than float32, and decoders held to those very models."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.pytorch_utils import Conv1D

from harness.adapters import load_decoder
from harness.checks import greedy
from harness.checks.prompts import random_prompt
from harness.contract import Request
from harness.models import PairError, load_pair
from harness.pair_files import DTYPES, UnsupportedPairError
from harness.precision import Int8Linear, convert


@pytest.fixture
def linear() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(48, 32)


@torch.no_grad()
def test_int8_is_the_layer_up_to_rounding(linear: nn.Linear) -> None:
    x = torch.randn(2, 5, 48)
    rounded = Int8Linear(linear.weight, linear.bias)
    assert rounded(x).shape == (2, 5, 32)
    steps = x.abs().amax(-1, keepdim=True) / 127, linear.weight.abs().amax(1) / 127
    # Half a step of each input and of each weight, over 48 products.
    bound = 48 * (steps[0] * linear.weight.abs().amax(1) + x.abs().amax(-1, True) * steps[1]) / 2
    assert ((rounded(x) - linear(x)).abs() < bound).all()
    torch.testing.assert_close(rounded.weight, linear.weight, atol=float(steps[1].max()), rtol=0)
    assert torch.equal(rounded(torch.zeros(1, 48)), linear.bias[None])


@torch.no_grad()
def test_int8_of_a_token_does_not_depend_on_the_tokens_beside_it(linear: nn.Linear) -> None:
    rounded = Int8Linear(linear.weight, linear.bias)
    x = torch.randn(9, 48) * torch.logspace(-3, 3, 9).unsqueeze(1)
    for width in (1, 2, 5):
        parts = torch.cat([rounded(part) for part in x.split(width)])
        assert torch.equal(parts, rounded(x))


@torch.no_grad()
def test_both_layouts_of_weights_are_rounded_alike(linear: nn.Linear) -> None:
    transposed = Conv1D(32, 48)
    transposed.weight.copy_(linear.weight.T)
    transposed.bias.copy_(linear.bias)
    x = torch.randn(3, 48)
    pair = load_pair("tiny-gpt2", dtype="int8")
    assert not any(isinstance(module, Conv1D) for module in pair.target.modules())
    one = Int8Linear(linear.weight, linear.bias)(x)
    assert torch.equal(one, Int8Linear(transposed.weight.T, transposed.bias)(x))


def test_frequencies_of_positions_are_not_rounded() -> None:
    exact = load_pair("tiny").target.model.rotary_emb.inv_freq
    for dtype in DTYPES:
        found = load_pair("tiny", dtype=dtype).target.model.rotary_emb.inv_freq
        assert torch.equal(found, exact)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2-bad", "tiny-window", "tiny-mamba"])
def test_the_reference_is_held_to_the_model_that_it_was_given(dtype: str, name: str) -> None:
    """Its greedy output is this target's, and not that of the one in float32."""
    pair = load_pair(name, dtype=dtype)
    decoder = load_decoder("reference", pair)
    prompts = [random_prompt(pair, 6, seed) for seed in range(6)]
    requests = [Request(prompt=p, max_new_tokens=24, draft_tokens=3) for p in prompts]
    answers = decoder.generate(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert greedy.problem_of(pair, request, answer)[0] == ""
    if dtype == "int8":  # coarse enough to show
        exact = load_pair(name)
        assert any(
            greedy.problem_of(exact, request, answer)[0]
            for request, answer in zip(requests, answers, strict=True)
        )


def test_a_model_without_linear_layers_is_refused() -> None:
    empty = LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=32, num_hidden_layers=0))
    with pytest.raises(ValueError, match="no linear layers"):
        convert(empty, "int8")


def test_no_file_says_that_a_model_computes_in_int8() -> None:
    with pytest.raises(UnsupportedPairError, match="another --dtype"):
        load_pair("tiny", dtype="int8").directory("target")


def test_a_gguf_file_is_a_target(tmp_path: object) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    pair = load_pair("tiny")
    files = {role: str(pair.file(role, "gguf")) for role in ("target", "draft")}
    again = load_pair(**files)
    ids = torch.tensor([random_prompt(pair, 6, 0)])
    with torch.no_grad():
        torch.testing.assert_close(again.target(ids).logits, pair.target(ids).logits)


def test_a_gguf_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(PairError, match="cannot load"):
        load_pair(target="nowhere/model.gguf", draft="nowhere/model.gguf")
