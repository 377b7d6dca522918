"""Files that say which items are known to fail, or are left out, and why.

One entry a line, ``item-pattern  # reason``: the pattern is a shell glob over the end of an
item's id (``test_stopping.py::test_offsets*``), and an entry without a reason is refused. A known
failure must fail; one that comes and goes is marked by a tilde, ``~item-pattern  # reason``.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path

FICKLE = "~"
KNOWN = Path(__file__).parent / "adapters" / "xfails"


class ExpectationsError(ValueError):
    """A file that cannot be read or understood; the message says where."""


@dataclass
class Expectations:
    """Patterns of expected failures and of skips, with their reasons.

    Attributes
    ----------
    xfails, skips : dict of str to str
        Reason by pattern.
    fickle : set of str
        Patterns of ``xfails`` whose items may also pass.
    """

    xfails: dict[str, str] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    fickle: set[str] = field(default_factory=set)
    _used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, xfails: str | None, skips: str | None) -> Expectations:
        """Read both files, where given."""
        known = _entries(xfails)
        fickle = {p.removeprefix(FICKLE).strip() for p in known if p.startswith(FICKLE)}
        known = {p.removeprefix(FICKLE).strip(): reason for p, reason in known.items()}
        return cls(known, _entries(skips), fickle)

    def xfail(self, item: str) -> str:
        """Why this item is expected to fail; empty if it is not."""
        return self._find(self.xfails, item)

    def may_pass(self, item: str) -> bool:
        """Whether an item that is expected to fail is known to pass at times."""
        return self._first(self.xfails, item) in self.fickle

    def skip(self, item: str) -> str:
        """Why this item is left out; empty if it is not."""
        return self._find(self.skips, item)

    def match(self, item: str) -> None:
        """Take note that a run has this item."""
        self.xfail(item)
        self.skip(item)

    def _find(self, entries: dict[str, str], item: str) -> str:
        return entries.get(self._first(entries, item), "")

    def _first(self, entries: dict[str, str], item: str) -> str:
        """The first pattern that an item's id ends in; empty where none does."""
        # Brackets are part of an item's id, not a character class.
        matching = [p for p in entries if fnmatch.fnmatchcase(item, "*" + p.replace("[", "[[]"))]
        self._used.update(matching)
        return matching[0] if matching else ""

    def unused(self) -> list[str]:
        """Patterns that no item matched: they are stale."""
        return [p for p in (*self.xfails, *self.skips) if p not in self._used]


def known_failures(decoder: str) -> Expectations:
    """What a decoder is known to fail, if it is one that comes with the harness."""
    files = {path.stem: str(path) for path in KNOWN.glob("*.txt")}
    return Expectations.read(files.get(decoder), None)


def _entries(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ExpectationsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExpectationsError(f"cannot read {path}: it is not UTF-8 text") from None
    found = {}
    for number, line in enumerate(lines, 1):
        pattern, hash_, reason = (part.strip() for part in line.partition("#"))
        if not pattern:
            continue  # empty, or a comment
        if not (hash_ and reason):
            raise ExpectationsError(f"{path}, line {number}: an entry needs a reason after '#'")
        found[pattern] = reason
    return found
