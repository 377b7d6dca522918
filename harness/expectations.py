"""Files that say which items are known to fail, or are left out, and why.

One entry a line, ``item-pattern  # reason``: the pattern is a shell glob over the end of an
item's id (``test_stopping.py::test_offsets*``), and an entry without a reason is refused. A known
failure must fail; one that comes and goes is marked by a tilde, ``~item-pattern  # reason``.

``item-pattern | text  # reason`` is the failure whose message has that text. Only such an entry
explains an ERROR: a decoder that breaks is not one that is wrong as it was before.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path

from harness.verdict import Status, Verdict

FICKLE = "~"
KNOWN = Path(__file__).parent / "adapters" / "xfails"


class ExpectationsError(ValueError):
    """A file that cannot be read or understood; the message says where."""


@dataclass(frozen=True)
class Entry:
    """One line of a file.

    Attributes
    ----------
    pattern, text, reason : str
        ``text`` is empty where any message but that of an ERROR will do.
    fickle : bool
        Whether the item may also pass.
    """

    pattern: str
    text: str
    reason: str
    fickle: bool

    def names(self, item: str) -> bool:
        """Whether an item's id ends as the pattern says."""
        # Brackets are part of an item's id, not a character class.
        return fnmatch.fnmatchcase(item, "*" + self.pattern.replace("[", "[[]"))

    def explains(self, verdict: Verdict) -> bool:
        """Whether it is this failure that a verdict tells of."""
        if self.text:
            return self.text in verdict.message
        return verdict.status is not Status.ERROR


@dataclass
class Expectations:
    """Expected failures and skips, in the order of their files."""

    xfails: list[Entry] = field(default_factory=list)
    skips: list[Entry] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, xfails: str | None, skips: str | None) -> Expectations:
        """Read both files, where given."""
        return cls(_entries(xfails), _entries(skips))

    def xfail(self, item: str) -> str:
        """Why this item may be expected to fail, until its verdict is known; empty for no."""
        return next((entry.reason for entry in self._of(self.xfails, item)), "")

    def may_pass(self, item: str) -> bool:
        """Whether an item that is expected to fail is known to pass at times."""
        return any(entry.fickle for entry in self._of(self.xfails, item))

    def explanation(self, item: str, verdict: Verdict) -> str:
        """Why this item fails in this way; empty where that is news."""
        found = (e.reason for e in self._of(self.xfails, item) if e.explains(verdict))
        return next(found, "")

    def skip(self, item: str) -> str:
        """Why this item is left out; empty if it is not."""
        return next((entry.reason for entry in self._of(self.skips, item)), "")

    def match(self, item: str) -> None:
        """Take note that a run has this item."""
        self._of([*self.xfails, *self.skips], item)

    def _of(self, entries: list[Entry], item: str) -> list[Entry]:
        named = [entry for entry in entries if entry.names(item)]
        self._used.update(entry.pattern for entry in named)
        return named

    def unused(self) -> list[str]:
        """Patterns that no item matched: they are stale."""
        return [e.pattern for e in (*self.xfails, *self.skips) if e.pattern not in self._used]


def known_failures(decoder: str) -> Expectations:
    """What a decoder is known to fail, if it is one that comes with the harness."""
    files = {path.stem: str(path) for path in KNOWN.glob("*.txt")}
    return Expectations.read(files.get(decoder), None)


def _entries(path: str | None) -> list[Entry]:
    if path is None:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ExpectationsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExpectationsError(f"cannot read {path}: it is not UTF-8 text") from None
    found = []
    for number, line in enumerate(lines, 1):
        what, hash_, reason = (part.strip() for part in line.partition("#"))
        if not what:
            continue  # empty, or a comment
        if not (hash_ and reason):
            raise ExpectationsError(f"{path}, line {number}: an entry needs a reason after '#'")
        pattern, bar, text = (part.strip() for part in what.partition("|"))
        if bar and not text:
            raise ExpectationsError(f"{path}, line {number}: an entry needs a text after '|'")
        name = pattern.removeprefix(FICKLE).strip()
        found.append(Entry(name, text, reason, fickle=pattern.startswith(FICKLE)))
    return found
