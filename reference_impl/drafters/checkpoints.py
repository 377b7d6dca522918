"""Weights of a checkpoint into a module, by name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


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
