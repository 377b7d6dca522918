"""What is measured beside the timed calls: the first token, and the memory of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.contract import Decoder, Request, StreamingDecoder

if TYPE_CHECKING:
    import torch


def first_seconds(
    decoder: Decoder, request: Request, synchronise: Callable[[], None]
) -> float | None:
    """Seconds from asking for a stream to its first token; the stream is then closed.

    Returns
    -------
    float or None
        None where ``stream`` is not declared, or does not come to a token: the suite ``streaming``
        says what is wrong then.
    """
    if "stream" not in decoder.capabilities or not isinstance(decoder, StreamingDecoder):
        return None
    try:
        synchronise()
        started = time.perf_counter()
        stream = decoder.stream(request)
        came = any(piece for piece in stream)  # stops at the first piece that has a token
        seconds = time.perf_counter() - started
        if close := getattr(stream, "close", None):
            close()
        synchronise()  # what was cancelled must not run into the next call
    except Exception:  # whatever a stranger's decoder raises
        return None
    return seconds if came else None


class PeakMemory:
    """Most bytes that were allocated on a CUDA device since ``reset``, by this process.

    The weights of target and draft lie there all the time, so what an arm needs for itself is the
    difference. A decoder in a process of its own is not seen.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def of(cls, device: torch.device) -> PeakMemory | None:
        """None for a CPU: what a process holds of its memory does not fall after the first arm."""
        return cls(device) if device.type == "cuda" else None

    def reset(self) -> None:
        """Begin anew."""
        import torch

        torch.cuda.reset_peak_memory_stats(self.device)

    def read(self) -> int:
        """Bytes at the peak."""
        import torch

        return torch.cuda.max_memory_allocated(self.device)
