"""The processes that a child has started, wherever they went: each carries the child's mark.

A process group is left by ``setsid``, and a parent by a second fork. The mark is a variable of the
environment, which both keep: what is lost only where a process is started with another one.
Elsewhere than on Linux nothing is found, and a child ends with its process group alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

MARK = "SPECDEC_CHILD"
ROUNDS = 100  # of looking for processes that are there still, or were started meanwhile


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment with a mark; those that are there stay, for a child may have children."""
    return {**environment, MARK: f"{environment.get(MARK, '')} {mark}".strip()}


def members(mark: str) -> Iterator[int]:
    """Ids of the processes that carry the mark; of the dead there is no environment."""
    words = mark.encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if words in path.read_bytes():
                yield int(path.parent.name)


def resident(mark: str) -> int:
    """Bytes of memory that they hold together; what two of them share counts twice."""
    pages = 0
    for process in members(mark):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill(mark: str) -> None:
    """End them all, and what they start while they are being ended."""
    for _ in range(ROUNDS):
        left = list(members(mark))
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not left:
            return
