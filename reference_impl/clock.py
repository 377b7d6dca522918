"""Where the time of a batch goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Adds up the seconds of the parts of a run.

    Parameters
    ----------
    synchronise : callable or None
        Waits for the device; None where its work is queued and nobody waits: then only what passes
        from begin to end is known.
    """

    def __init__(self, synchronise: Callable[[], None] | None) -> None:
        self._synchronise = synchronise
        self.restart()

    def restart(self) -> None:
        """Begin, with no parts."""
        self._began = self.now()
        self.parts: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        """Seconds, when all that was asked for is done."""
        if self._synchronise is not None:
            self._synchronise()
        return time.perf_counter()

    def since_begin(self) -> float:
        """Seconds since this was made."""
        return time.perf_counter() - self._began

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside as a part."""
        if self._synchronise is None:
            yield
            return
        begin = self.now()
        yield
        self.parts[name] += self.now() - begin
