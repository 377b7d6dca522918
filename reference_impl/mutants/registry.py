"""What a mutant is, and the decorator that makes one of an engine with a step overridden."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.adapters.reference import EngineDecoder
from harness.contract import Decoder
from harness.models import ModelPair
from harness.verdict import FaultClass
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Drafter

Engine = TypeVar("Engine", bound=type[SpeculativeEngine])
Build = TypeVar("Build", bound=type[Any])
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
    build : callable
        Makes the wrong decoder on a pair.
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
    """

    name: str
    build: Callable[[ModelPair], Decoder]
    fault: str
    kind: FaultClass
    killed_by: tuple[str, ...]
    id: str = ""
    source: str = CLASSIC
    needs: frozenset[str] = frozenset()

    def __call__(self, pair: ModelPair) -> Decoder:
        """Build the wrong decoder on a pair."""
        return self.build(pair)


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
    drafter : callable
        What proposes on a pair.
    subtle : mapping
        Class attributes that make the fault slight: registered as well, as ``name_subtle``.
    subtle_killed_by : tuple of str
        Where that one must be caught, if not in the same items.
    """

    def add(
        engine: type[SpeculativeEngine], name: str, fault: str, killed_by: tuple[str, ...]
    ) -> None:
        def build(pair: ModelPair) -> EngineDecoder:
            decoder = EngineDecoder(pair, made := drafter(pair), engine=engine)
            if isinstance(made, ModelDrafter):  # a wrong drafter claims what the right one is
                decoder.capabilities |= {"model_draft"}
            return decoder

        _add(Mutant(name, build, fault, kind, killed_by, id, source, frozenset(needs)))

    def register(engine: Engine) -> Engine:
        name, fault = _name(engine), _first_line(engine)
        add(engine, name, fault, killed_by)
        if subtle is not None:
            slight = type(f"{engine.__name__}Subtle", (engine,), dict(subtle))
            words = ", ".join(f"{key} {value}" for key, value in subtle.items())
            by = subtle_killed_by or killed_by
            add(slight, f"{name}_subtle", f"{fault.rstrip('.')}: {words}.", by)
        return engine

    return register


def wrong_decoder(
    kind: FaultClass, *killed_by: str, id: str = "", source: str = CLASSIC
) -> Callable[[Build], Build]:
    """Register a class of decoders whose fault is not a step of the engine."""

    def register(build: Build) -> Build:
        _add(Mutant(_name(build), build, _first_line(build), kind, killed_by, id, source))
        return build

    return register


def _add(made: Mutant) -> None:
    assert made.name not in _registered, made.name
    _registered[made.name] = made


def _name(made: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower()


def _first_line(made: type) -> str:
    return (made.__doc__ or "").strip().splitlines()[0]


def registered() -> Mapping[str, Mutant]:
    """All mutants by name, in the order of their definition."""
    return _registered
