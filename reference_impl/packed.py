"""Linear layers with weights laid out in advance, for decoding on a CPU.

A forward pass over one token, or over a block of K + 1, reads every weight once and computes
next to nothing. With weights in the row-major layout of a checkpoint the matrix library spends
part of that on rearranging them at every call, the more so for blocks; oneDNN's blocked layout
makes verifying a block cost about what one token costs. The layout is the one that
``torch.compile`` freezes into its graphs; nothing else of the model changes. On that layout, in
float32, one to three rows are slower than four, so fewer are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeGuard, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from reference_impl.compiled import static_forward
from reference_impl.sharing import copy_that_shares

Model = TypeVar("Model", bound=nn.Module)

_ROWS = 4  # tokens per call that the layout is chosen for: a block
_LARGE = 1 << 16  # weights below fit the processor's cache, and are fast as they are


class PackedLinear(nn.Module):
    """A linear layer over packed weights.

    Parameters
    ----------
    linear : nn.Linear
        Left as it is.
    dtype : torch.dtype
        Of the packed weights and of the product; results come back in the input's dtype.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = linear
        self._dtype = dtype
        weight = linear.weight.detach().to(dtype)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach().to(dtype)

    @property
    def weight(self) -> Tensor:
        """The weights as the checkpoint has them, [out, in]."""
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        if x.dtype is not self._dtype:  # to convert what needs no conversion costs some percent
            return self.forward(x.to(self._dtype)).to(x.dtype)
        missing = _ROWS - x.shape[:-1].numel()
        if missing <= 0 or self._dtype is not torch.float32:
            return self._product(x)
        rows = nn.functional.pad(x.reshape(-1, x.shape[-1]), (0, 0, 0, missing))
        return self._product(rows)[:-missing].view(*x.shape[:-1], -1)

    def _product(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return product


# A layer keeps the weights it was made of alive, so that their address means no others.
_IN_USE: WeakValueDictionary[Hashable, PackedLinear] = WeakValueDictionary()


def with_packed_linears(model: Model, dtype: torch.dtype | None = None) -> Model:
    """A copy of ``model`` that shares its parameters and has its large linear layers packed.

    The model itself where packing does not apply: on another device, in another dtype than
    float32, without oneDNN, where all layers are small, or where it is compiled, which packs.

    Parameters
    ----------
    dtype : torch.dtype, optional
        Compute the packed layers in bfloat16: half the bytes to read, and another model. Good
        for a draft, whose law may be any. Float32 where the processor has no bfloat16.
    """
    if static_forward(model) or not any(_packable(module) for module in model.modules()):
        return model
    if dtype is None or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        dtype = torch.float32
    packed = copy_that_shares(model)
    for module in list(packed.modules()):
        for name, child in module.named_children():
            if _packable(child):
                setattr(module, name, packed_linear(child, dtype))
    return packed


def packed_linear(linear: nn.Linear, dtype: torch.dtype) -> PackedLinear:
    """The layer over packed weights: the same one for all who ask as long as somebody keeps it.

    Decoders on one target pack it once. Weights that were changed in between, other than through
    ``.data``, are packed anew.
    """
    key = (dtype, *map(_contents, (linear.weight, linear.bias)))
    found = _IN_USE.get(key)
    if found is None:
        found = _IN_USE[key] = PackedLinear(linear, dtype)
    return found


def _contents(tensor: Tensor | None) -> Hashable:
    """What tells the numbers of a tensor from those of all others, while it lives."""
    if tensor is None:
        return None
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tuple(tensor.shape), version


def _packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    return (
        type(module) is nn.Linear
        and module.weight.device.type == "cpu"
        and module.weight.dtype is torch.float32
        and module.weight.numel() >= _LARGE
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
