"""From the host to the device, without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """A copy of ``values`` on the device; on a CPU the same memory.

    What comes from pageable memory is staged before the call returns (CUDA Runtime API, "API
    synchronization behavior"), so that nothing has to wait until it has arrived.
    """
    return torch.from_numpy(values).to(device, non_blocking=True)
