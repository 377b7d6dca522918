"""Models with narrow attention heads, rewritten so that vLLM's CPU kernels take them.

Heads are padded with zeros to the narrowest width that there is a kernel for, and the queries are
scaled by what the wider head's scale takes away: the same function. Rotations stay in the first
positions, which a partial rotary factor says.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.pair_files import UnsupportedPairError

WIDTH = 32  # of the narrowest heads that vLLM's CPU attention takes
_ROTARY = {"llama", "mistral"}


def wide_enough(directory: Path, scratch: Path) -> Path:
    """The model's directory, or one in ``scratch`` with the same model in wider heads.

    Raises
    ------
    UnsupportedPairError
        If its heads are too narrow, and their width is tied to the model's; if it has none.
    """
    config = json.loads((directory / "config.json").read_text())
    heads = config.get("num_attention_heads") or config.get("n_head")
    if not heads:
        raise UnsupportedPairError(
            f"vLLM's CPU build has no selective scan, which {config['model_type']} needs"
        )
    width = config.get("head_dim") or (config.get("hidden_size") or config["n_embd"]) // heads
    if width >= WIDTH:
        return directory
    if config["model_type"] not in _ROTARY:
        raise UnsupportedPairError(
            f"vLLM's CPU attention has no kernel for heads of {width}, and those of "
            f"{config['model_type']} cannot be padded: use another pair"
        )
    from safetensors.numpy import load_file, save_file

    made = scratch / directory.name
    shutil.copytree(directory, made)
    weights = load_file(made / "model.safetensors")
    save_file(
        {name: padded(name, weight, width) for name, weight in weights.items()},
        made / "model.safetensors",
    )
    config["head_dim"] = WIDTH
    config["rope_parameters"]["partial_rotary_factor"] = width / WIDTH
    (made / "config.json").write_text(json.dumps(config))
    return made


def padded(name: str, weight: NDArray[Any], width: int) -> NDArray[Any]:
    """A weight of attention with heads of ``width`` as one with heads of ``WIDTH``.

    Parameters
    ----------
    name : str
    weight : ndarray
        [heads * width, D] of queries, keys and values, [D, heads * width] of the output; any other
        one is returned as it is.
    """
    if name.endswith("o_proj.weight"):
        return np.ascontiguousarray(_rows(weight.T, width).T)
    if name.endswith("q_proj.weight"):
        return _rows(weight, width) * np.float32(math.sqrt(WIDTH / width))
    if name.endswith(("k_proj.weight", "v_proj.weight")):
        return _rows(weight, width)
    return weight


def _rows(weight: NDArray[Any], width: int) -> NDArray[Any]:
    heads = weight.reshape(-1, width, weight.shape[1])
    wide = np.pad(heads, ((0, 0), (0, WIDTH - width), (0, 0)))
    return wide.reshape(-1, weight.shape[1])
