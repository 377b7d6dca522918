"""What cannot be used is refused where a decoder is built: checkpoints and options."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from harness.adapters import DecoderError, load_decoder
from harness.contract import Request
from harness.models import load_pair
from reference_impl.drafters.eagle import EagleDrafter, EagleLayer, load_eagle
from reference_impl.drafters.medusa import MedusaDrafter, load_medusa
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa

load = functools.cache(load_pair)

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


def refusal(name: str, pair: str = "tiny", **options: object) -> str:
    """Why a decoder cannot be built: a ValueError of its factory, in one line."""
    with pytest.raises(DecoderError) as caught:
        load_decoder(name, load(pair), {key: str(value) for key, value in options.items()})
    assert isinstance(caught.value.__cause__, ValueError), caught.value.__cause__
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(folder: Path, weights: str, change: Change) -> None:
    """Write a checkpoint again, with something else in its configuration or its weights."""
    shape = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / weights)
    change(shape, tensors)
    (folder / "config.json").write_text(json.dumps(shape))
    save_file(tensors, folder / weights)


def eagle(folder: Path, change: Change) -> str:
    untrained_eagle(load("tiny").target).save(folder)
    changed(folder, "model.safetensors", change)
    return str(folder)


def medusa(folder: Path, change: Change) -> str:
    untrained_medusa(load("tiny").target).save(folder)
    changed(folder, "medusa_lm_head.safetensors", change)
    return str(folder)


def says(**values: object) -> Change:
    """In the configuration."""
    return lambda shape, weights: shape.update(values)


def holds(*ids: float) -> Change:
    """As the vocabulary."""
    return lambda shape, weights: weights.update(vocabulary=torch.tensor(ids))


VOCABULARIES = [
    ((3, -1), "has the id -1, outside the target's 0..63"),
    ((3, 64), "has the id 64, outside"),
    ((3, 4, 3), "names an id twice"),
    ((0.5, 1.0), "must be a list of token ids"),
    ((), "must be a list of token ids"),
]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (says(depths=[8]), "depths are [8]: numbers of layers are needed, and -1 behind them"),
        (says(depths=[]), "depths are []"),
        (says(depths=3), "depths are 3"),
        (says(depths=[1.5, -1]), "depths are [1.5, -1]"),
        (says(depths=["a", -1]), "depths are ['a', -1]"),
        (says(depths=[-2, -1]), "depths are [-2, -1]"),
        (says(num_attention_heads=0), "describes no EAGLE layer"),
        (says(num_attention_heads="x"), "describes no EAGLE layer"),
        *((holds(*ids), words) for ids, words in VOCABULARIES),
    ],
)
@pytest.mark.parametrize("name", ["reference-eagle", "reference-eagle-tree"])
def test_an_eagle_that_does_not_fit(name: str, change: Change, words: str, tmp_path: Path) -> None:
    assert words in refusal(name, layer=eagle(tmp_path, change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (says(medusa_num_heads=0), "has medusa_num_heads 0: a number from 1 on needed"),
        (says(medusa_num_heads="x"), "has medusa_num_heads 'x'"),
        (says(medusa_num_layers=None), "has medusa_num_layers None"),
        *((holds(*ids), words) for ids, words in VOCABULARIES),
    ],
)
def test_medusa_heads_that_do_not_fit(change: Change, words: str, tmp_path: Path) -> None:
    assert words in refusal("reference-medusa", heads=medusa(tmp_path, change))


def test_a_configuration_that_is_a_list(tmp_path: Path) -> None:
    folder = medusa(tmp_path, says())
    (tmp_path / "config.json").write_text("[]")
    assert "config.json is no JSON object" in refusal("reference-medusa", heads=folder)
    assert "holds no checkpoint" in refusal("reference-eagle", layer=folder)


@pytest.mark.parametrize("name", ["reference-eagle", "reference-eagle-tree"])
def test_an_eagle_of_another_target(name: str, tmp_path: Path) -> None:
    wide = LlamaConfig(hidden_size=16, intermediate_size=8, num_attention_heads=2, vocab_size=1)
    EagleLayer(wide).save(tmp_path)
    words = "for states of 16 numbers, the target's have 32: use a layer that was trained for"
    assert words in refusal(name, layer=tmp_path)
    wide.hidden_size, wide.depths = 32, [1, 3, -1]
    EagleLayer(wide).save(tmp_path)
    assert "reads the states after 3 layers, the target has 2" in refusal(name, layer=tmp_path)


def test_ids_of_columns_that_mean_no_token(tmp_path: Path) -> None:
    """A head may be wider than the vocabulary: its padding is nothing to propose."""
    pair = load("tiny")
    for change, most in ((holds(60), 60), (holds(1), 1)):
        layer = load_eagle(Path(eagle(tmp_path, change)))
        head = pair.target.get_output_embeddings()
        heads = load_medusa(Path(medusa(tmp_path, change)), head, 32)
        for build in (
            lambda vocab, layer=layer: EagleDrafter(layer, pair.target, vocab),
            lambda vocab, heads=heads: MedusaDrafter(heads, vocab),
        ):
            build(most + 1)
            with pytest.raises(ValueError, match=f"has the id {most}, outside"):
                build(most)


@pytest.mark.parametrize("value", ["x", "nan", "-0.1", "1", "1.5", "inf", "true", ""])
def test_a_threshold_that_is_none(value: str) -> None:
    words = "give a number, at least 0 and below 1"
    assert words in refusal("reference", stop_below=value)


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "x", "true", "nan", ""])
@pytest.mark.parametrize("name", ["reference", "reference-tree", "reference-branches"])
def test_a_batch_of_no_rows(name: str, value: str) -> None:
    assert "give a whole number, at least 1" in refusal(name, max_batch=value)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("reference-tree", "replaced"),
        ("reference-medusa", "tree"),
        ("reference-eagle", "tree"),
    ],
)
@pytest.mark.parametrize("value", ["maybe", "1", ""])
def test_neither_true_nor_false(name: str, option: str, value: str) -> None:
    assert f"{option} is " in (found := refusal(name, **{option: value}))
    assert "give true or false" in found


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("reference-ngram", "max_ngram"),
        ("reference-ngram", "min_ngram"),
        ("reference-suffix", "min_match"),
        ("reference-cascade", "min_match"),
        ("reference-eagle-cascade", "min_match"),
        ("reference-early-exit", "layers"),
    ],
)
@pytest.mark.parametrize("value", ["x", "1.5", "true", "-1"])
def test_a_size_that_is_none(name: str, option: str, value: str) -> None:
    assert f"{option} is " in refusal(name, **{option: value})


def test_what_fits_is_taken() -> None:
    request = Request(prompt=(1, 2, 3), max_new_tokens=6)
    for name, options in (
        ("reference", {"stop_below": "0.5", "max_batch": "2"}),
        ("reference", {"stop_below": "0"}),
        ("reference-tree", {"replaced": "true"}),
        ("reference-early-exit", {"layers": "0"}),
    ):
        [answer] = load_decoder(name, load("tiny"), options).generate([request])
        assert len(answer.tokens) == 6


def test_a_tree_of_draws_needs_keys_and_values_of_the_draft() -> None:
    pair = load_pair("tiny")
    pair.draft = load("tiny-mamba").draft
    with pytest.raises(ValueError, match="a draft with keys and values"):
        load_decoder("reference-tree", pair)
