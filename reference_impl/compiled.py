"""Models whose calls have few shapes, so that each is compiled once and used again.

A block's keys and values are written at places that are data, and the attention sees all slots of
the cache, through a mask: nothing of a call's shape depends on how long a text is. On a GPU such a
graph is recorded and replayed (CUDA graphs), which saves the launch of every kernel in it; that
launch is most of what a small draft costs. There is one graph for each number of rows, of tokens
in a block, and of ``STEP`` slots of capacity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from reference_impl.sharing import copy_that_shares

STEP = 128  # slots: capacities are rounded up to a multiple
_GRAPHS = 64  # more shapes than a run has; beyond the limit torch goes on without compiling


def compiled(model: PreTrainedModel, backend: str | Callable[..., Any]) -> PreTrainedModel:
    """A copy that shares its parameters with ``model``, and is compiled wherever it is cached.

    Parameters
    ----------
    model : PreTrainedModel
        With keys and values.
    backend : str or callable
        Of ``torch.compile``; ``inductor`` as a rule.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _GRAPHS)
    copy = copy_that_shares(model.eval())
    replayed = backend == "inductor" and model.device.type == "cuda"
    mode = "reduce-overhead" if replayed else None
    copy.static_forward = torch.compile(copy.forward, backend=backend, dynamic=False, mode=mode)
    return copy


def static_forward(model: nn.Module) -> Callable[..., Any] | None:
    """The compiled forward pass of a model; None if it has none."""
    return getattr(model, "static_forward", None)


def rounded_up(capacity: int) -> int:
    """The next multiple of ``STEP`` slots."""
    return -(-capacity // STEP) * STEP
