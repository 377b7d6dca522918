"""Packing linear layers changes their layout and nothing else."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from reference_impl.packed import PackedLinear, with_packed_linears


def model(hidden: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@torch.inference_mode()
def test_packed_model_computes_the_same() -> None:
    plain = model(256)
    packed = with_packed_linears(plain)
    assert any(isinstance(module, PackedLinear) for module in packed.modules())
    assert not any(isinstance(module, PackedLinear) for module in plain.modules())
    for shape in ((2, 20), (1, 1), (3, 1), (1, 2), (1, 4)):
        ids = torch.arange(shape[0] * shape[1]).view(shape)
        torch.testing.assert_close(packed(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@torch.inference_mode()
def test_rows_are_the_same_numbers_alone_and_in_a_block() -> None:
    """Of float32 weights; and in bfloat16 the result comes back as the input was."""
    layer = packed_layers(with_packed_linears(model(256)))[0]
    block = torch.randn(1, 4, layer.weight.shape[1])
    for rows in (1, 2, 3):
        assert torch.equal(layer(block[:, :rows]), layer(block)[:, :rows])
    half = packed_layers(with_packed_linears(model(256), torch.bfloat16))[0]
    assert half(block).dtype is torch.float32


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_parameters_are_shared_not_copied() -> None:
    plain = model(256)
    addresses = {p.data_ptr() for p in plain.parameters()}
    assert {p.data_ptr() for p in with_packed_linears(plain).parameters()} == addresses


def test_small_layers_and_other_dtypes_stay_as_they_are() -> None:
    small, double = model(32), model(256).double()
    assert with_packed_linears(small) is small
    assert with_packed_linears(double) is double


def packed_layers(of: LlamaForCausalLM) -> list[PackedLinear]:
    return [module for module in of.modules() if isinstance(module, PackedLinear)]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_weights_are_packed_once_for_all_who_use_them() -> None:
    plain = model(256)
    first, second = with_packed_linears(plain), with_packed_linears(plain)
    assert first is not second
    for one, other in zip(packed_layers(first), packed_layers(second), strict=True):
        assert one is other
    assert packed_layers(with_packed_linears(model(256)))[0] is not packed_layers(first)[0]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_weights_that_were_changed_are_packed_anew() -> None:
    plain = model(256)
    before = with_packed_linears(plain)
    with torch.no_grad():
        plain.lm_head.weight.mul_(2)
    ids = torch.arange(8).view(1, 8)
    with torch.inference_mode():
        found, expected = with_packed_linears(plain)(ids).logits, plain(ids).logits
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert packed_layers(before)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_packed_weights_go_with_the_last_who_uses_them() -> None:
    plain = model(256)
    layer = weakref.ref(packed_layers(with_packed_linears(plain))[0])
    gc.collect()
    assert layer() is None
