"""A decoder in Python that goes off where a prompt begins with 13, in the way that comes next.

Everything else the reference answers. Only to be run by ``--isolate``: in this process it would do
to the tests what it does to its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.adapters.reference import EngineDecoder, engine
from harness.contract import Completion, Request
from harness.models import ModelPair


def far_away(directory: str) -> None:
    """A process in a session of its own, whose parent is gone."""
    gone = "until ps -o comm= -p $! | grep -q sleep; do :; done"
    line = f"setsid sleep 600 & echo $! > {directory}/waiting; {gone}"
    subprocess.run(["sh", "-c", line], check=True)


class Runaway:
    """The reference, up to the prompt at which it goes off."""

    def __init__(self, right: EngineDecoder, directory: str, always: bool) -> None:
        self._right, self._directory, self._always = right, directory, always
        self.capabilities = right.capabilities | {"exact_law"}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        for request in requests:
            if self._always or request.prompt[0] == 13:
                self._go_off("hangs" if self._always else WAYS[request.prompt[1]])
        return self._right.generate(requests)

    def stream(self, request: Request) -> Iterator[list[int]]:
        if request.prompt[0] != 13:
            yield from self._right.stream(request)
            return
        while True:
            yield [] if WAYS[request.prompt[1]] == "streams nothing" else [7]

    def _go_off(self, way: str) -> None:
        match way:
            case "hangs":
                time.sleep(600)
            case "spins":
                while True:
                    pass
            case "ignores signals":
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                time.sleep(600)
            case "segfaults":
                ctypes.string_at(0)
            case "sys.exit":
                sys.exit(0)
            case "os._exit":
                os._exit(0)
            case "interrupts":
                raise KeyboardInterrupt
            case "eats memory":
                hoard: list[Any] = []
                while True:
                    hoard.append(bytearray(64 << 20))
            case "eats memory in a child":
                eat = "x = []\nwhile True: x.append(bytearray(b'1') * (64 << 20))"
                for _ in range(3):
                    subprocess.Popen([sys.executable, "-c", eat])
                time.sleep(600)
            case "prints":
                print('{"type": "completions", "id": 1, "completions": []}', flush=True)
                os.write(1, b"noise\n")
            case "writes to the door":
                for descriptor in range(3, 20):
                    try:
                        os.write(descriptor, b'{"type": "completions", "completions": []}\n')
                    except OSError:
                        continue
            case "threads":
                for _ in range(100_000):
                    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            case "hangs, and leaves a process far away":
                far_away(self._directory)
                time.sleep(600)
            case "rewrites the harness":
                from harness.checks import subject
                from harness.verdict import Status, Verdict

                subject.malformed = subject.no_token = lambda *_: ""
                Verdict.passed = property(lambda _: True)  # type: ignore[assignment]
                Status.FAIL._value_ = "PASS"


WAYS = [
    "hangs",
    "spins",
    "ignores signals",
    "segfaults",
    "sys.exit",
    "os._exit",
    "interrupts",
    "eats memory",
    "eats memory in a child",
    "writes to the door",
    "threads",
    "prints",
    "rewrites the harness",
    "streams",
    "streams nothing",
    "hangs, and leaves a process far away",
]


def build(
    pair: ModelPair, directory: str = "", always: bool = False, exits: bool = False
) -> Runaway:
    """The decoder; it leaves the ids of its processes in a directory."""
    if exits:
        os._exit(4)
    if directory:
        (Path(directory) / str(os.getpid())).touch()
    return Runaway(engine(pair), directory, always)
