"""Checkpoints of drafters: read from safetensors alone, and put into a module by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

PICKLES = ("*.pt", "*.bin", "*.pth")


def opened(
    folder: Path, shape: str, weights: str, keys: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights that lie in a folder.

    Parameters
    ----------
    shape, weights : str
        Names of the two files: JSON, and safetensors.
    keys : sequence of str
        That the configuration must have.

    Raises
    ------
    ValueError
        In one line, if one of them is not there or not whole. A pickle is named, and never opened.
    """
    pickles = [path.name for kind in PICKLES for path in sorted(folder.glob(kind))]
    if pickles and not (folder / weights).exists():
        raise ValueError(
            f"{folder} has its weights in {pickles[0]}, a pickle, which may run anything and is "
            f"never loaded: convert it to {weights}"
        )
    try:
        found = json.loads((folder / shape).read_text())
        if not isinstance(found, dict):
            raise ValueError(f"{shape} is no JSON object")
        missing = [key for key in keys if key not in found]
        tensors = load_file(folder / weights)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        words = str(error).strip().splitlines()
        reason = words[0] if words else type(error).__name__
        raise ValueError(f"{folder} holds no checkpoint ({shape}, {weights}): {reason}") from None
    if missing:
        raise ValueError(f"{folder / shape} does not say {missing[0]}")
    return found, tensors


def fill(parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], kind: str) -> None:
    """Copy weights into the parameters of the same names.

    Parameters
    ----------
    kind : str
        What it is a checkpoint of, for messages.

    Raises
    ------
    ValueError
        If names or shapes are not the same on both sides.
    """
    if unlike := sorted(parameters.keys() ^ weights.keys()):
        raise ValueError(f"this is no checkpoint of {kind}: {', '.join(unlike[:4])}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise ValueError(
                    f"{name} is {list(weights[name].shape)}, of {kind} for this target it must be "
                    f"{list(parameter.shape)}"
                )
            parameter.copy_(weights[name])


def checked_ids(vocabulary: Tensor, size: int) -> Tensor:
    """The ids that a drafter is limited to, [R] int64.

    Raises
    ------
    ValueError
        Unless they are distinct ids below ``size``, and at least one.
    """
    found = vocabulary.tolist()
    if vocabulary.ndim != 1 or not found or any(type(token) is not int for token in found):
        raise ValueError(
            f"the vocabulary of this checkpoint is {vocabulary.dtype} {list(vocabulary.shape)}: "
            "it must be a list of token ids"
        )
    if outside := [token for token in found if not 0 <= token < size]:
        raise ValueError(
            f"the vocabulary of this checkpoint has the id {outside[0]}, outside the target's "
            f"0..{size - 1}: use a checkpoint for this target"
        )
    if len(set(found)) < len(found):
        raise ValueError("the vocabulary of this checkpoint names an id twice")
    return vocabulary.long()


def fingerprint(model: nn.Module) -> str:
    """What tells the weights of a model from those of others."""
    found = hashlib.sha256()
    for weight in model.parameters():
        found.update(weight.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def said_of(path: Path) -> dict[str, str] | None:
    """What a safetensors file says of itself; None where it is none, or says nothing."""
    try:
        with safe_open(path, "pt") as stored:
            said: dict[str, str] | None = stored.metadata()
            return said
    except (OSError, SafetensorError):
        return None
