"""Hugging Face directories as models of onnxruntime-genai, with its own builder, in float32.

The builder and the kernels have wishes that tiny models do not meet: heads of a multiple of 16, no
linear layer but the last with as many outputs as there are tokens, a tokenizer and an EOS id. So
the model is rewritten first, as one that computes the same, and has one token more.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.adapters.converted import converted

Weight = NDArray[Any]


def onnx_model(directory: Path) -> Path:
    """A directory with ``genai_config.json`` and ``model.onnx``.

    Raises
    ------
    NotImplementedError
        If the builder does not know the architecture.
    """
    form = f"onnxruntime-genai-{metadata.version('onnxruntime-genai')}-added-token"
    return converted(directory, form, _build)


def _build(source: Path, made: Path) -> None:
    import onnxruntime_genai

    sys.path.insert(0, f"{onnxruntime_genai.__path__[0]}/models")
    from builder import create_model, parse_extra_options

    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "model"
        shutil.copytree(source, directory)
        config = json.loads((directory / "config.json").read_text())
        if config.get("num_attention_heads") and config.get("num_key_value_heads"):
            _rewrite(directory, config)
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            config[key] = config.get(key) or 0  # a request says at which ids it ends
        (directory / "config.json").write_text(json.dumps(config))
        if not (directory / "tokenizer_config.json").exists():
            _write_tokenizer(directory, int(config["vocab_size"]))
        arguments = ("", str(directory), str(made), "fp32", "cpu", f"{scratch}/cache")
        create_model(*arguments, **parse_extra_options(*arguments, []))
    _add_token(made)


def _add_token(made: Path) -> None:
    """Widen the logits by a token that is never drawn.

    For a request without EOS ids: the generator ends at some id whatever happens.
    """
    import onnx
    from onnx import TensorProto, helper

    path = made / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    node = next(node for node in graph.node if "logits" in node.output)
    node.output[list(node.output).index("logits")] = "logits_of_tokens"
    graph.initializer.extend(
        [
            helper.make_tensor("added_token", TensorProto.INT64, [6], [0, 0, 0, 0, 0, 1]),
            helper.make_tensor("added_logit", TensorProto.FLOAT, [], [-1e30]),
        ]
    )
    padding = ["logits_of_tokens", "added_token", "added_logit"]
    graph.node.append(helper.make_node("Pad", padding, ["logits"]))
    (output,) = (value for value in graph.output if value.name == "logits")
    output.type.tensor_type.shape.dim[-1].dim_value += 1
    for value in [value for value in graph.value_info if value.name == "logits"]:
        graph.value_info.remove(value)
    onnx.save(model, path)
    config = json.loads((made / "genai_config.json").read_text())
    never = config["model"]["vocab_size"]
    # What is taken for padding wherever it is in a prompt must be no id of a request either.
    config["model"] |= {"vocab_size": never + 1, "eos_token_id": never, "pad_token_id": never}
    (made / "genai_config.json").write_text(json.dumps(config, indent=2))


def _write_tokenizer(directory: Path, vocab: int) -> None:
    """One that the builder can read; nobody asks it anything."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {str(token): token for token in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(directory)


def _rewrite(directory: Path, config: dict[str, Any]) -> None:
    from safetensors.numpy import load_file, save_file

    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    heads = {config["num_attention_heads"], config["num_key_value_heads"]}
    wide = width(head, heads, config["vocab_size"])
    hidden = config["intermediate_size"]
    more = 8 if hidden == config["vocab_size"] else 0
    if wide == head and not more:
        return
    path = directory / "model.safetensors"
    weights = {
        name: widened(name, weight, head, wide, more) for name, weight in load_file(path).items()
    }
    save_file(weights, path, metadata={"format": "pt"})
    config["head_dim"], config["intermediate_size"] = wide, hidden + more


def width(head: int, heads: set[int], vocab: int) -> int:
    """The narrowest heads, from ``head`` on, that kernels and builder take."""
    if head % 16 == 0:
        return head
    multiple = math.lcm(head, 16)
    return next(w for w in range(multiple, 9**9, multiple) if vocab not in {n * w for n in heads})


def widened(name: str, weight: Weight, head: int, wide: int, more: int) -> Weight:
    """A weight with heads of ``wide`` in place of ``head``, and ``more`` neurons that do nothing.

    Parameters
    ----------
    name : str
        In Llama's naming.
    weight : ndarray [outputs, inputs]
    """
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        # Both together make up for the wider head's smaller scale.
        return _spread(weight, head, wide) * np.float32((wide / head) ** 0.25)
    if name.endswith("v_proj.weight"):
        return _spread(weight, head, wide)
    if name.endswith("o_proj.weight"):
        return np.ascontiguousarray(_spread(weight.T, head, wide).T)
    if name.endswith(("gate_proj.weight", "up_proj.weight")):
        return np.pad(weight, ((0, more), (0, 0)))
    if name.endswith("down_proj.weight"):
        return np.pad(weight, ((0, 0), (0, more)))
    return weight


def _spread(weight: Weight, head: int, wide: int) -> Weight:
    """Rows of heads with zeros between: dimension i of each half goes to ``i * wide / head``.

    There the rotary frequency of the wider head is the one that dimension i has in the narrow one.
    """
    halves = weight.reshape(-1, 2, head // 2, weight.shape[1])
    spread = np.zeros((len(halves), 2, wide // 2, weight.shape[1]), weight.dtype)
    spread[:, :, :: wide // head] = halves
    return spread.reshape(-1, weight.shape[1])
