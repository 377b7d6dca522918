"""What ``pytest suites/`` runs, as plain data: the suites' own functions, pairs and cases.

The kill matrix calls these, so that what it measures is what a user of the suites gets.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import suites
from harness.checks.budget import ALPHA, PROFILES, Budget
from harness.checks.subject import Subject
from harness.verdict import Verdict


@dataclass(frozen=True)
class Item:
    """One item of the suites: a check on a pair, in one of its cases.

    Attributes
    ----------
    check : str
        ``suite.test``.
    pair : str
    case : str
        Empty where there is only one.
    statistical : bool
        Whether it shares the run's alpha.
    """

    check: str
    pair: str
    case: str
    statistical: bool
    function: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suite(self) -> str:
        """The file it stands in."""
        return self.check.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.check}[{self.pair}{'-' * bool(self.case)}{self.case}]"

    def run(self, subject: Subject, budget: Budget) -> Verdict:
        """The verdict on a subject, which must be on this item's pair."""
        found: list[Verdict] = []
        self.function(subject=subject, budget=budget, conclude=found.append, **self.arguments)
        return found[0]


def items(profile: str) -> list[Item]:
    """All items of a profile, in the order of the suites' names."""
    return [
        item
        for module in sorted(info.name for info in pkgutil.iter_modules(suites.__path__))
        if module.startswith("test_")
        for item in _of_module(module, profile)
    ]


def budget_of(profile: str, found: list[Item]) -> Budget:
    """The profile's budget, alpha shared among its statistical items."""
    tests = max(1, sum(item.statistical for item in found))
    return dataclasses.replace(PROFILES[profile], alpha=ALPHA / tests)


def _of_module(module: str, profile: str) -> Iterator[Item]:
    namespace = vars(importlib.import_module(f"suites.{module}"))
    for name, function in namespace.items():
        if not name.startswith("test_"):
            continue
        marks = {mark.name: mark for mark in getattr(function, "pytestmark", [])}
        pairs = marks["pairs"].args if "pairs" in marks else ("tiny",)
        for pair in pairs[:1] if profile == "smoke" else pairs:
            for case, slow, arguments in _cases(marks):
                if profile == "smoke" and (slow or "slow" in marks):
                    continue
                yield Item(
                    f"{module.removeprefix('test_')}.{name.removeprefix('test_')}",
                    pair,
                    case,
                    "statistical" in marks,
                    function,
                    arguments,
                )


def _cases(marks: Mapping[str, Any]) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """Name, whether it is slow, and arguments, of each case that a function is parametrised by."""
    if "parametrize" not in marks:
        yield "", False, {}
        return
    names, values = marks["parametrize"].args
    names = [names] if isinstance(names, str) else names
    for value in values:
        slow = any(mark.name == "slow" for mark in getattr(value, "marks", ()))
        given = getattr(value, "values", None)
        given = (value,) if not isinstance(given, tuple) else given
        case = getattr(value, "id", None) or "-".join(map(str, given))
        yield case, slow, dict(zip(names, given, strict=True))
