"""What a mutant is, and the decorator that makes one of an engine with a step overridden."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.adapters.reference import EngineDecoder
from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Drafter

Engine = TypeVar("Engine", bound=type[SpeculativeEngine])
MakeDrafter = Callable[[ModelPair], Drafter]
CLASSIC = "classic"


def draft_model(pair: ModelPair) -> Drafter:
    """The pair's draft."""
    return ModelDrafter(pair.draft, pair.vocab_size)


def lookup(pair: ModelPair) -> Drafter:
    """Prompt lookup, whose rounds are often empty."""
    return NgramDrafter()


@dataclass(frozen=True)
class Mutant:
    """A decoder with one named fault.

    Attributes
    ----------
    name : str
    engine : type
        The reference engine with a step overridden.
    fault : str
        What is wrong, in one line.
    kind : FaultClass
    killed_by : tuple of str
        Suite items that must catch it, each by itself: ``suite.test``, with ``[pair]`` if it
        shows on that pair only.
    id : str
        Of the catalogue of public faults; empty for a classic.
    source : str
        Public issues and pull requests.
    needs : frozenset of str
        Capabilities without which the fault cannot show.
    drafter : callable
        What proposes.
    """

    name: str
    engine: type[SpeculativeEngine]
    fault: str
    kind: FaultClass
    killed_by: tuple[str, ...]
    id: str = ""
    source: str = CLASSIC
    needs: frozenset[str] = frozenset()
    drafter: MakeDrafter = draft_model

    def __call__(self, pair: ModelPair) -> EngineDecoder:
        """Build the wrong decoder on a pair."""
        return EngineDecoder(pair, self.drafter(pair), engine=self.engine)


_registered: dict[str, Mutant] = {}


def mutant(
    kind: FaultClass,
    *killed_by: str,
    id: str = "",
    source: str = CLASSIC,
    needs: tuple[str, ...] = (),
    drafter: MakeDrafter = draft_model,
    subtle: Mapping[str, Any] | None = None,
    subtle_killed_by: tuple[str, ...] = (),
) -> Callable[[Engine], Engine]:
    """Register an engine as a mutant, under its class's name in lower case.

    The first line of its docstring says what is wrong.

    Parameters
    ----------
    subtle : mapping
        Class attributes that make the fault slight: registered as well, as ``name_subtle``.
    subtle_killed_by : tuple of str
        Where that one must be caught, if not in the same items.
    """

    def register(engine: Engine) -> Engine:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", engine.__name__).lower()
        fault = (engine.__doc__ or "").strip().splitlines()[0]

        def add(
            name: str, engine: type[SpeculativeEngine], fault: str, by: tuple[str, ...]
        ) -> None:
            assert name not in _registered, name
            _registered[name] = Mutant(
                name, engine, fault, kind, by, id, source, frozenset(needs), drafter
            )

        add(name, engine, fault, killed_by)
        if subtle is not None:
            slight = type(f"{engine.__name__}Subtle", (engine,), dict(subtle))
            words = ", ".join(f"{key} {value}" for key, value in subtle.items())
            by = subtle_killed_by or killed_by
            add(f"{name}_subtle", slight, f"{fault.rstrip('.')}: {words}.", by)
        return engine

    return register


def registered() -> Mapping[str, Mutant]:
    """All mutants by name, in the order of their definition."""
    return _registered
