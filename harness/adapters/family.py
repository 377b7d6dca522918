"""The processes that a child has started, wherever they went: each carries the child's mark.

A process group is left by ``setsid``, and a parent by a second fork. The mark is a variable of the
environment, which both keep: what is lost only where a process is started with another one.
Elsewhere than on Linux nothing is found, and a child ends with its process group alone.

None outlives this process, however that ends: a second one, which is this file, waits for its end
and then ends all that is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MARK = "SPECDEC_CHILD"
ROUNDS = 100  # of looking for processes that are there still, or were started meanwhile
_lock = threading.Lock()
_watchers: dict[int, subprocess.Popen[bytes]] = {}  # by process: a fork needs one of its own


def start(
    command: list[str], environment: Mapping[str, str], **pipes: Any
) -> tuple[subprocess.Popen[Any], str]:
    """Start a child in a process group of its own; it and the mark of its family.

    A terminal's Ctrl-C does not reach it, so that the harness decides. ``pipes`` is for ``Popen``.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command, env=marked(environment, mark), start_new_session=True, **pipes
    )
    _tell(f"{mark} {process.pid}")
    return process, mark


def end(process: subprocess.Popen[Any], mark: str) -> None:
    """End a child and all of its family, at once."""
    _end(mark, process.pid)
    process.wait()
    _tell(f"{mark} 0")


def _end(mark: str, group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    kill(mark)


def _tell(line: str) -> None:
    with _lock:
        if (watcher := _watchers.get(os.getpid())) is None:
            watcher = _watchers[os.getpid()] = subprocess.Popen(
                [sys.executable, "-I", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what ends this process's group must not end it
                bufsize=0,
            )
    assert watcher.stdin
    with contextlib.suppress(OSError):  # somebody has ended it
        watcher.stdin.write(f"{line}\n".encode())


def _watch() -> None:
    """Until stdin ends keep account of the families that it tells of; then end those left."""
    left: dict[str, int] = {}
    for line in sys.stdin:
        mark, group = line.split()
        if group == "0":
            left.pop(mark, None)
        else:
            left[mark] = int(group)
    for mark, pid in left.items():
        _end(mark, pid)


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


if __name__ == "__main__":
    _watch()
