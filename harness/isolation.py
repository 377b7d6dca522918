"""``--isolate`` and its limits, as the suites and the benchmark take them. Imports no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "isolated: "  # of a decoder's name


@dataclass(frozen=True)
class Limit:
    """Something that a child may not have more of.

    Attributes
    ----------
    name : str
        Of the parameter of ``adapters.isolated.isolated``.
    default : float
    metavar, meaning : str
    """

    name: str
    default: float
    metavar: str
    meaning: str

    @property
    def option(self) -> str:
        """The option of a command, without its dashes."""
        return self.name.replace("_", "-")


LIMITS = (
    Limit("time_limit", 300, "SECONDS", "that one call of the decoder may take, or one stream"),
    Limit("memory_limit", 16, "GIB", "that the child and all that it starts may hold"),
)


def isolated_name(decoder: str) -> str:
    """The decoder of that name in a child process."""
    return f"{PREFIX}{decoder}"


def limits(given: Mapping[str, float | None], isolate: bool) -> dict[str, str]:
    """Options of an isolated decoder.

    Raises
    ------
    ValueError
        In one line, if they make no sense.
    """
    found = {}
    for limit in LIMITS:
        value = given[limit.name]
        if value is not None and not isolate:
            raise ValueError(f"--{limit.option} has no effect without --isolate")
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"--{limit.option} is {value:g}: it must be above 0")
        if isolate:
            found[limit.name] = f"{limit.default if value is None else value:g}"
    return found
