"""A child process that answers every line with one line, whatever else it may do."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from harness.adapters import family

SHOWN = 400  # bytes of what a child wrote to stderr
LONGEST = 1 << 28  # bytes of one answer
CHUNK = 1 << 16
GIB = 1 << 30
GLANCE = 0.2  # seconds between two looks at whether a silent child is still there
PATIENCE = 5.0  # seconds for a child that was told to exit


class ChildError(RuntimeError):
    """The child died, was silent for too long, or said something that is not the protocol."""


class Child:
    """One process: what it started ends with it, and it with this object and this process.

    Parameters
    ----------
    command : sequence of str
    environment : mapping, optional
        Variables in place of this process's own.
    memory : int, optional
        Bytes that it and what it started may hold; looked at while an answer is waited for.

    Attributes
    ----------
    kill : callable
        Ends it and all that it started, at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        memory: int | None = None,
    ) -> None:
        self._memory = memory
        try:
            self._process, self._mark = family.start(
                list(command),
                os.environ if environment is None else environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise ChildError(f"cannot start {shlex.join(command)}: {error.strerror}") from None
        self.kill = weakref.finalize(self, _kill, self._process, self._mark)
        stdin, stdout, stderr = _pipes(self._process)
        for pipe in (stdin, stderr):
            os.set_blocking(pipe.fileno(), False)
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        self._read = bytearray()  # of stdout, and not yet handed out
        self._words = b""  # the last ones of stderr

    def exchange(self, line: bytes, timeout: float) -> bytes:
        """Write a line, and read one.

        All three pipes are served until it is there, so that none can fill up and stop the child.

        Raises
        ------
        ChildError
            If there is none, in words that say why.
        """
        deadline, unwritten = time.monotonic() + timeout, memoryview(line)
        glance = time.monotonic() + GLANCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stderr, selectors.EVENT_READ)
            while unwritten or b"\n" not in self._read:
                left = deadline - time.monotonic()
                if left <= 0:
                    what = "did not read the request" if unwritten else "gave no answer"
                    raise ChildError(f"the child {what} within {timeout:g} s{self._last_words()}")
                if len(self._read) > LONGEST:
                    raise ChildError(f"the child wrote a line of more than {LONGEST} bytes")
                if self._memory and time.monotonic() > glance:
                    self._weigh(self._memory)
                    glance = time.monotonic() + GLANCE
                ready = [key.fileobj for key, _ in selector.select(min(left, GLANCE))]
                # Something that it left behind may keep its pipes open.
                if not ready and self._process.poll() is not None:
                    raise ChildError(self._end())
                if self._stdin in ready:
                    unwritten = unwritten[self._write(unwritten) :]
                    if not unwritten:
                        selector.unregister(self._stdin)
                if self._stderr in ready and not self._hear():
                    selector.unregister(self._stderr)
                if self._stdout in ready:
                    chunk = os.read(self._stdout.fileno(), CHUNK)
                    self._read += chunk
                    if not chunk:
                        raise ChildError(self._end())
        answer, _, rest = self._read.partition(b"\n")
        self._read = rest
        return bytes(answer)

    def stop(self, line: bytes) -> None:
        """Ask it to exit by a last line and the end of stdin, then make it."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._write(memoryview(line))
            self._stdin.close()
            self._process.wait(PATIENCE)
        self.kill()

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError:  # it reads no more; whether it answers is another matter
            return len(data)

    def _weigh(self, limit: int) -> None:
        if (held := family.resident(self._mark)) > limit:
            raise ChildError(
                f"the child and what it started hold {held / GIB:.3g} GiB, the limit is "
                f"{limit / GIB:.3g}{self._last_words()}"
            )

    def _hear(self) -> bool:
        """Read some of stderr; whether there may be more."""
        try:
            chunk = os.read(self._stderr.fileno(), CHUNK)
        except BlockingIOError:
            return False
        self._words = (self._words + chunk)[-SHOWN:]
        return bool(chunk)

    def _end(self) -> str:
        """How it ended, in words; it is made to, if it has only closed its stdout."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        code = self._process.returncode
        if code is None:
            how = "closed its stdout"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"exited with status {code}"
        where = " in the midst of a line" if self._read else ""
        return f"the child {how}{where}{self._last_words()}"

    def _last_words(self) -> str:
        for _ in range(2):  # which is what a pipe holds
            self._hear()
        self.kill()
        words = " ".join(self._words.decode(errors="replace").split())
        return f"; its stderr ends: {words}" if words else ""


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    return process.stdin, process.stdout, process.stderr


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    family.end(process, mark)
    for pipe in _pipes(process):
        pipe.close()
