"""Models from a directory, the hub or a GGUF file: weights and nothing that runs.

safetensors and GGUF hold numbers. A pickle (``pytorch_model.bin``) is a program, and never loaded.
Python that a directory brings (``auto_map`` in its configuration) is run only where it is trusted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from harness.model_pair import PairError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def load(path: str, trust: bool = False) -> PreTrainedModel:
    """A causal language model in float32.

    Parameters
    ----------
    path : str
        A directory, a hub id or a GGUF file.
    trust : bool
        Whether Python that comes with it is run.

    Raises
    ------
    PairError
        In one line that says what is wrong and what to do.
    """
    where = _where(path)
    if not path.endswith(".gguf"):
        _check(path, trust)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, use_safetensors=True, trust_remote_code=trust
        )
    except Exception as error:  # of a torn file, a foreign configuration, or its own code
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise PairError(f"cannot load {path!r} as a causal LM: {reason}") from None
    return model


def tokenizer(path: str, trust: bool = False) -> Any:
    """Its tokenizer; None if it has none."""
    try:
        found = AutoTokenizer.from_pretrained(**_where(path), trust_remote_code=trust)
    except Exception:  # a directory without a tokenizer fails in ways that differ by version
        return None
    # Or it succeeds, with an empty one: GPT-2's then knows its end-of-text token alone.
    return found if len(found) > len(found.all_special_tokens) else None


def _where(path: str) -> dict[str, str]:
    """A directory or hub id as ``from_pretrained`` takes it; a GGUF file is read dequantised."""
    if not path.endswith(".gguf"):
        return {"pretrained_model_name_or_path": path}
    file = Path(path)
    if not file.exists():
        raise PairError(f"cannot load {path!r} as a causal LM: there is no such file")
    return {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}


def _check(path: str, trust: bool) -> None:
    """PairError for what would run code of the model's own."""
    directory = Path(path)
    if directory.is_dir() and not list(directory.glob("*.safetensors")):
        pickles = [file.name for kind in PICKLES for file in sorted(directory.glob(kind))]
        if pickles:
            raise PairError(
                f"{path!r} has its weights in {pickles[0]}, a pickle, which may run anything "
                "and is never loaded: convert it to safetensors"
            )
    if not trust and (files := _with_own_code(path)):
        raise PairError(
            f"{path!r} brings Python of its own (auto_map in {files[0]}), which is not run: give "
            "--trust-remote-code if you trust it, or take auto_map out of a copy"
        )


def _with_own_code(path: str) -> list[str]:
    """Its configuration files that name code; of what cannot be read ``load`` says why."""
    named = []
    try:
        found, _ = PreTrainedConfig.get_config_dict(path)
    except Exception:
        found = {}
    if found.get("auto_map"):
        named.append("config.json")
    settings = Path(path) / "tokenizer_config.json"  # of a hub id it is not run either way
    try:
        if settings.is_file() and json.loads(settings.read_text()).get("auto_map"):
            named.append(settings.name)
    except (OSError, ValueError, AttributeError):
        pass
    return named
