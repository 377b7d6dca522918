"""A recurrent model that is rolled back gives what it gives uncached, wherever it goes on from."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from harness.models import load_pair
from harness.tiny_pairs import make_target
from reference_impl import recurrent
from reference_impl.cache import CachedModel
from reference_impl.recurrent import RecurrentModel, cached_model, is_recurrent, position_bytes

load = functools.cache(load_pair)
IDS = torch.randint(0, 64, (3, 24), generator=torch.Generator().manual_seed(5))


def uncached(ids: torch.Tensor) -> torch.Tensor:
    return load("tiny-mamba").target(input_ids=ids, use_cache=False).logits


@pytest.fixture
def model() -> CachedModel:
    return cached_model(load("tiny-mamba").target, capacity=24, vocab=64)


def test_the_kind_of_cache_is_the_models() -> None:
    assert is_recurrent(load("tiny-mamba").target)
    assert not is_recurrent(load("tiny").target)
    assert type(cached_model(load("tiny-mamba").target, 8, 64)) is RecurrentModel
    assert type(cached_model(load("tiny").target, 8, 64)) is CachedModel


@torch.inference_mode()
@pytest.mark.parametrize("width", [1, 3, 24])
def test_blocks_give_the_logits_of_the_whole_text(model: CachedModel, width: int) -> None:
    blocks = [model.forward(IDS[:, at : at + width], np.full(3, at)) for at in range(0, 24, width)]
    torch.testing.assert_close(torch.cat(blocks, 1), uncached(IDS), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_every_row_goes_on_from_where_it_is_told(model: CachedModel) -> None:
    """Whatever was fed beyond that place leaves nothing behind."""
    model.prefill(IDS[:, :10])
    model.forward(IDS.flip(1)[:, :9], np.array([10, 4, 7]))
    start = np.array([10, 4, 12])  # the last row keeps five of what was fed
    rows = [torch.cat([IDS[i, :at], IDS[i, :6]]) for i, at in enumerate((10, 4))]
    rows.append(torch.cat([IDS[2, :7], IDS.flip(1)[2, :5], IDS[2, :6]]))
    logits = model.forward(IDS[:, :6], start)
    for i, row in enumerate(rows):
        expected = uncached(row.unsqueeze(0))[0, -6:]
        torch.testing.assert_close(logits[i], expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_rows_that_are_kept_go_on_as_they_were(model: CachedModel) -> None:
    model.prefill(IDS[:, :10])
    model.select(torch.tensor([2, 0]))
    logits = model.forward(IDS[[2, 0], 10:], np.array([10, 10]), keep=2)
    assert logits.shape == (2, 2, 64)
    torch.testing.assert_close(logits, uncached(IDS[[2, 0]])[:, -2:], atol=1e-5, rtol=0)


def test_a_text_beyond_the_capacity_is_refused(model: CachedModel) -> None:
    with pytest.raises(ValueError, match="25 positions do not fit a cache of 24"):
        model.forward(IDS, np.array([0, 1, 0]))


@torch.inference_mode()
def test_what_a_position_takes() -> None:
    config = load("tiny-mamba").target.config
    state = config.intermediate_size * (config.state_size + config.conv_kernel)
    assert position_bytes(load("tiny-mamba").target) == config.num_hidden_layers * state * 4
    config = load("tiny").target.config
    assert position_bytes(load("tiny").target) == 2 * config.num_hidden_layers * 32 * 4


@torch.inference_mode()
def test_a_model_with_keys_and_values_beside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "is_recurrent", lambda model: True)
    model = cached_model(make_target("llama", 64, 1), 8, 64)
    with pytest.raises(ValueError, match="recurrent states in every layer"):
        model.forward(IDS[:, :4], np.zeros(3, dtype=np.int64))
