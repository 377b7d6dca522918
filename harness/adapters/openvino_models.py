"""Hugging Face directories as OpenVINO models in float32; runs where optimum-intel is installed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from harness.adapters.converted import converted


def openvino_model(directory: Path) -> Path:
    """The model with its key-value cache as state, and a tokenizer."""
    versions = "-".join(metadata.version(name) for name in ("openvino", "optimum-intel"))
    return converted(directory, f"openvino-{versions}", _export)


def has_attention(directory: Path) -> bool:
    """Whether its keys and values can go into pages, without which there is no speculation."""
    config = json.loads((directory / "config.json").read_text())
    return bool(config.get("num_attention_heads") or config.get("n_head"))


def _export(source: Path, made: Path) -> None:
    from optimum.intel import OVModelForCausalLM

    model = OVModelForCausalLM.from_pretrained(
        source, export=True, compile=False, load_in_8bit=False, local_files_only=True
    )
    model.save_pretrained(made)
    _write_tokenizer(made)


def _write_tokenizer(made: Path) -> None:
    """A tokenizer that makes id 0 of every text.

    Requests are ids; but the pipeline with a draft has both models' tokenizers encode something to
    see whether they agree, and tiny models have none.
    """
    import numpy as np
    import openvino
    from openvino import opset13 as op

    text = op.parameter([-1], openvino.Type.string, name="text")
    shape = op.concat([op.shape_of(text), op.constant(np.array([1]))], 0)
    ids = op.broadcast(op.constant(np.int64(0)), shape)
    mask = op.broadcast(op.constant(np.int64(1)), shape)
    ids.output(0).set_names({"input_ids"})
    mask.output(0).set_names({"attention_mask"})
    tokenizer = openvino.Model([ids, mask], [text], "tokenizer")
    openvino.save_model(tokenizer, made / "openvino_tokenizer.xml")
