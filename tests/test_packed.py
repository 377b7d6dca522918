"""Packing linear layers changes their layout and nothing else."""

from __future__ import annotations

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
def test_parameters_are_shared_not_copied() -> None:
    plain = model(256)
    addresses = {p.data_ptr() for p in plain.parameters()}
    assert {p.data_ptr() for p in with_packed_linears(plain).parameters()} == addresses


def test_small_layers_and_other_dtypes_stay_as_they_are() -> None:
    small, double = model(32), model(256).double()
    assert with_packed_linears(small) is small
    assert with_packed_linears(double) is double
