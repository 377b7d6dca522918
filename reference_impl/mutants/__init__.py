"""Known-wrong decoders, one named fault each: what the suites must catch.

``MUTANTS`` names them all. Each is a factory like any decoder's, so the suites run on it with
``pytest suites/ --decoder reference_impl.mutants:accept_all``. They are grouped by the part of a
decoder that is wrong: one module a part, and whatever is in one of them is registered.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from reference_impl.mutants.registry import Mutant, registered

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

MUTANTS: Mapping[str, Mutant] = registered()


def __getattr__(name: str) -> Mutant:
    if name in MUTANTS:
        return MUTANTS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
