"""``isolated: NAME``: a Python decoder in a process of its own, behind the stdio door.

The child is ``python -m harness.isolated``. What it does to itself is its own loss: a call that
takes too long, or all memory, or the process with it, is an ERROR of that call, and the next call
starts a new child.
"""

from __future__ import annotations

import os
import sys

import msgspec

from harness.adapters.stdio import StdioDecoder
from harness.isolation import LIMITS
from harness.models import ModelPair

TIME_LIMIT, MEMORY_LIMIT = (limit.default for limit in LIMITS)
STARTING = 300.0  # seconds until a child has loaded its models, at the least
GIB = 1 << 30


def isolated(
    name: str,
    pair: ModelPair,
    /,
    time_limit: float = TIME_LIMIT,
    memory_limit: float = MEMORY_LIMIT,
    **options: bool | int | float | str,
) -> StdioDecoder:
    """A decoder of this Python, in a child.

    The child loads the pair anew: it shares no memory with this process. ``exact_law`` is not
    declared, whatever the decoder says: its randomness would be this process's.

    Parameters
    ----------
    name : str
        What ``load_decoder`` takes.
    pair : ModelPair
    time_limit : float
        Seconds that one call may take; a stream is one call. The first one of a child may take
        ``STARTING``, for it loads the models.
    memory_limit : float
        GiB that the child and all that it started may hold, and that each may ask for. Memory of
        other devices is not counted.
    **options
        Handed to the decoder's factory.
    """
    for word, value in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if not (isinstance(value, int | float) and value > 0):
            raise ValueError(f"{word} is {value}: it must be above 0")
    loaded_with = pair.loaded_with or {
        "target": str(pair.directory("target")),
        "draft": str(pair.directory("draft")),
    }
    command = [sys.executable, "-m", "harness.isolated", name]
    command += ["--pair", msgspec.json.encode(loaded_with).decode()]
    command += ["--memory-limit", f"{memory_limit:g}"]
    # What this process finds, the child finds: a decoder may lie anywhere on this path.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return StdioDecoder(
        command,
        pair.files(()),
        options,
        time_limit,
        variables,
        starting=max(time_limit, STARTING),
        memory=int(memory_limit * GIB),
    )
