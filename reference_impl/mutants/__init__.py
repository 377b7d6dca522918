"""Known-wrong decoders, one named fault each: what the suites must catch.

``MUTANTS`` names them all. Each is a factory like any decoder's, so the suites run on it with
``pytest suites/ --decoder reference_impl.mutants:accept_all``. They are grouped by the part of a
decoder that is wrong: one module a part.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference_impl.mutants import (
    acceptance,
    adapters,
    batching,
    drafting,
    ends,
    greedy,
    pages,
    parameters,
    positions,
    processors,
    proposals,
    randomness,
    recurrent,
    reports,
    residuals,
    reuse,
    rollback,
    scheduling,
    sequences,
    trees,
    vocabulary,
    window,
)
from reference_impl.mutants.registry import Mutant, registered

__all__ = [
    "INEXPRESSIBLE",
    "MUTANTS",
    "acceptance",
    "adapters",
    "batching",
    "drafting",
    "ends",
    "greedy",
    "pages",
    "parameters",
    "positions",
    "processors",
    "proposals",
    "randomness",
    "recurrent",
    "reports",
    "residuals",
    "reuse",
    "rollback",
    "scheduling",
    "sequences",
    "trees",
    "vocabulary",
    "window",
]

MUTANTS: Mapping[str, Mutant] = registered()

INEXPRESSIBLE: Mapping[str, str] = {}
"""Public faults, by id, that no decoder behind the contract can have, and why."""


def __getattr__(name: str) -> Mutant:
    if name in MUTANTS:
        return MUTANTS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
