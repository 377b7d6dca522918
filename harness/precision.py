"""The numbers that a model computes in: a float type, or 8-bit integers in its linear layers.

int8 here is what servers call W8A8: weights are rounded to 127 steps a column, and the inputs of a
layer to 127 steps a token, when it is called. Products of integers sum up exactly, so for the same
input a layer gives a token the same output whatever else is in the call. What comes into it is the
same but for rounding, as attention and norms are computed in floats; where a last digit falls on
the other side of a step, the token moves by that step: outputs part at near-ties far sooner than
those of floats do (``reports/sweeps/dtype``). Where inputs are scaled a tensor at a time
(``torch.ao.quantization.quantize_dynamic``) it is worse: the law of a token depends on the drafts
beside it, and no decoder can be lossless.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from harness.pair_files import INT8

_STEPS = 127
_ROWS = 32  # the fewest that a GPU's integer product takes, a power of two above 16


class Int8Linear(nn.Module):
    """A linear layer with weights in 8 bits, which rounds its inputs to 8 bits too.

    Parameters
    ----------
    weight : Tensor [out, in]
    bias : Tensor [out] or None
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _STEPS
        self.scale: Tensor
        self.rounded: Tensor
        self.bias: Tensor | None
        self.register_buffer("scale", scale)  # [out]
        self.register_buffer("rounded", (weight / scale.unsqueeze(1)).round().to(torch.int8))
        self.register_buffer("bias", None if bias is None else bias.detach())

    @property
    def weight(self) -> Tensor:
        """What the weights are after rounding, [out, in], float32."""
        return self.rounded * self.scale.unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], in the same dtype."""
        flat = x.reshape(-1, x.shape[-1]).float()
        scale = flat.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / _STEPS
        rounded = (flat / scale).round().to(torch.int8)
        if missing := max(0, _ROWS - len(flat)) if x.is_cuda else 0:
            rounded = nn.functional.pad(rounded, (0, 0, 0, missing))
        product = torch._int_mm(rounded, self.rounded.t())[: len(flat)]
        result = product * scale * self.scale
        if self.bias is not None:
            result = result + self.bias
        return result.view(*x.shape[:-1], -1).to(x.dtype)


def convert(model: PreTrainedModel, dtype: str) -> None:
    """Make a model compute in ``dtype``, in place.

    Buffers stay as they are, as ``from_pretrained`` leaves them: rounded rotary frequencies would
    put tokens at other places. int8 leaves embeddings, norms and the output head in float32.

    Raises
    ------
    ValueError
        If int8 is asked for and the model has no linear layers.
    """
    float_type = torch.float32 if dtype == INT8 else getattr(torch, dtype)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(float_type)
    model.config.dtype = float_type
    if dtype == INT8:
        _round_linears(model)


def _round_linears(model: PreTrainedModel) -> None:
    head = model.get_output_embeddings()
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear | Conv1D) and child is not head
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no linear layers to compute in int8")
    for parent, name, child in found:
        weight = child.weight.T if isinstance(child, Conv1D) else child.weight
        setattr(parent, name, Int8Linear(weight, child.bias))
