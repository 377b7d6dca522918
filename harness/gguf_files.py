"""Models as GGUF files in float32, for the llama.cpp family of engines.

Of Llama's architecture, GPT-2's and Mamba's. A pair without a tokenizer gets a made-up vocabulary
in which token 7 is the text ``<7>``: what a server says in text can be told apart into ids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from harness.pair_files import UnsupportedPairError


def write_gguf(directory: Path) -> Path:
    """The model of a Hugging Face directory as a GGUF file beside it, made on first demand.

    Raises
    ------
    ValueError
        If its architecture is none of those above, or the package gguf is missing.
    """
    made = directory.with_name(f"{directory.name}-f32.gguf")
    if made.exists() and made.stat().st_mtime >= (directory / "config.json").stat().st_mtime:
        return made
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise ValueError("GGUF files need: pip install 'specdec-harness[gguf]'") from None
    config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    if _name(config) not in _ARCHITECTURES:
        raise UnsupportedPairError(
            f"no GGUF of {_name(config)}: only of {', '.join(_ARCHITECTURES)}"
        )
    # Complete or not there at all: another process may look for it, or make it too.
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        fresh = Path(scratch) / made.name
        _write(directory, config, fresh)
        fresh.rename(made)
    return made


def _name(config: Any) -> str:
    return str((config.architectures or ["nothing"])[0])


def _write(directory: Path, config: Any, path: Path) -> None:
    import gguf

    arch, describe, translate = _ARCHITECTURES[_name(config)]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config.vocab_size)
    describe(writer, config)
    _add_vocabulary(writer, directory, config.vocab_size)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for shard in sorted(directory.glob("*.safetensors")):
        for key, weight in load_file(shard).items():
            translated = names.get_name(key, try_suffixes=(".weight", ".bias"))
            if translated is None:
                raise ValueError(f"no GGUF of {_name(config)}: no name for its {key}")
            values = translate(key, weight.float(), config).contiguous().numpy()
            writer.add_tensor(translated, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, directory: Path, size: int) -> None:
    """The directory's own tokenizer; where it has none, ``<id>`` for every id."""
    import gguf

    texts = [f"<{token}>" for token in range(size)]
    types = [gguf.TokenType.NORMAL] * size
    if not (directory / "tokenizer.json").exists():
        # A kind of tokenizer for which llama.cpp makes up no end-of-text id.
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(texts)
        writer.add_token_types(types)
        return
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    for text, token in tokenizer.get_vocab().items():
        if token < size:
            texts[token] = text
    for token in tokenizer.all_special_ids:
        types[token] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")  # how text is split, which matters not where ids go in
    writer.add_token_list(texts)
    writer.add_token_types(types)
    gguf.SpecialVocab(directory, load_merges=True, n_vocab=size).add_to_gguf(writer, quiet=True)


def _describe_llama(writer: Any, config: Any) -> None:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"no GGUF with rope scaling {rope['rope_type']!r}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rope["rope_theta"])


def _translate_llama(key: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Rows of q and k in the order of llama.cpp's rotation: neighbours, not halves, are a pair."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(key.split(".")[-2])
    if count is None:
        return weight
    rows = weight.reshape(count, 2, -1, *weight.shape[1:])
    return rows.transpose(1, 2).reshape(weight.shape)


def _describe_gpt2(writer: Any, config: Any) -> None:
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def _translate_gpt2(key: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Its projections are stored transposed."""
    stored = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return weight.T if key.endswith(stored) else weight


def _describe_mamba(writer: Any, config: Any) -> None:
    writer.add_context_length(2**20)  # it has no positions
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)


def _translate_mamba(key: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    if key.endswith("A_log"):
        return -torch.exp(weight)
    return weight.squeeze(1) if key.endswith("conv1d.weight") else weight


_ARCHITECTURES: dict[
    str,
    tuple[
        str,
        Callable[[Any, Any], None],
        Callable[[str, torch.Tensor, Any], torch.Tensor],
    ],
] = {
    "LlamaForCausalLM": ("llama", _describe_llama, _translate_llama),
    "GPT2LMHeadModel": ("gpt2", _describe_gpt2, _translate_gpt2),
    "MambaForCausalLM": ("mamba", _describe_mamba, _translate_mamba),
}
