"""Copies of a module that share its weights."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def copy_that_shares(module: Module) -> Module:
    """A copy of a module whose parameters and buffers are those of the module itself."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared)
