"""A server that the harness starts itself, and that never outlives it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from harness.adapters import family
from harness.adapters.http_client import ServerError

SHOWN = 5  # last lines of a log


class ServerProcess:
    """One server, on whatever port it finds free. It ends with this object, and this process.

    Parameters
    ----------
    command : sequence of str
        Has to make the server say in its log, stdout or stderr, where it listens.
    listening : Pattern
        Finds the URL in a line of the log, as its first group.
    variables : mapping
        Environment variables beside this process's own.
    timeout : float
        Seconds until it has to listen.

    Attributes
    ----------
    url, name : str
        Where it listens; the program that it is.
    stop : callable
        Ends it, and all that it started, at once.

    Raises
    ------
    ValueError
        If it does not come to listen; the message has the last lines of its log.
    """

    def __init__(
        self,
        command: Sequence[str],
        listening: re.Pattern[str],
        variables: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> None:
        self.name = os.path.basename(command[0])
        try:
            self._process, mark = family.start(
                list(command),
                {**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ValueError(f"cannot start {shlex.join(command)}: {error.strerror}") from None
        self.stop = weakref.finalize(self, family.end, self._process, mark)
        assert self._process.stdout
        self._log = _Log(self._process.stdout, listening)
        try:
            heard = self._log.decided.wait(timeout)
            self.url = self._log.url
            if not self.url:
                silence = f"did not listen within {timeout:g} s"
                words = (self.ended(patience=10) if heard else "") or silence + self._log.tail()
                raise ValueError(f"{self.name} {words}")
        except BaseException:  # also where the user interrupts
            self.stop()
            raise

    def ended(self, patience: float = 1) -> str:
        """How it ended, with the last lines of its log; empty if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        code = self._process.returncode
        if code is None:
            return ""
        self._log.thread.join(patience)
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}{self._log.tail()}"
        return f"exited with status {code}{self._log.tail()}"


@contextlib.contextmanager
def ends_told(*servers: ServerProcess) -> Iterator[None]:
    """Errors of the door say how a server ended, if one of these did, with its last words."""
    try:
        yield
    except (ServerError, ValueError) as error:  # of a request, and of an endpoint
        for server in servers:
            if ended := server.ended():
                raise type(error)(f"{error}: {server.name} {ended}") from error
        raise


class _Log:
    """Reads a log to its end, for a full pipe would stop the server; keeps its last lines.

    It knows nothing of the process's object, which can so be forgotten while this still reads.
    """

    def __init__(self, lines: IO[str], listening: re.Pattern[str]) -> None:
        self.url = ""
        self.decided = threading.Event()  # there is a URL, or there will be none
        self._kept: deque[str] = deque(maxlen=SHOWN)
        self.thread = threading.Thread(target=self._read, args=(lines, listening), daemon=True)
        self.thread.start()

    def _read(self, lines: IO[str], listening: re.Pattern[str]) -> None:
        with lines:
            for line in lines:
                self._kept.append(line)
                if not self.url and (match := listening.search(line)):
                    self.url = match[1]
                    self.decided.set()
        self.decided.set()

    def tail(self) -> str:
        """The last lines, in one."""
        kept = " | ".join(" ".join(line.split()) for line in list(self._kept))
        return f"; its log ends: {kept}" if kept else ""
