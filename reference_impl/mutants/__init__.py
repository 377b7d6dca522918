"""Known-wrong decoders, one named fault each: what the suites must catch.

``MUTANTS`` names them all. Each is a factory like any decoder's, so the suites run on it with
``pytest suites/ --decoder reference_impl.mutants:accept_all``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.adapters.reference import EngineDecoder
from harness.models import ModelPair
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.mutants import classics


@dataclass(frozen=True)
class Mutant:
    """A fault and the engine that has it.

    Attributes
    ----------
    engine : type
        The reference engine with one step overridden.
    fault : str
        What is wrong, in one line.
    seen_in : str
        Suites that must catch it.
    """

    engine: type[SpeculativeEngine]
    fault: str
    seen_in: tuple[str, ...]

    def __call__(self, pair: ModelPair) -> EngineDecoder:
        """Build the wrong decoder on a pair."""
        drafter = ModelDrafter(pair.draft, pair.vocab_size)
        return EngineDecoder(pair, drafter, engine=self.engine)


def _mutant(engine: type[SpeculativeEngine], *seen_in: str) -> Mutant:
    fault = (engine.__doc__ or "").strip().splitlines()[0]
    return Mutant(engine, fault, seen_in)


accept_all = _mutant(classics.AcceptAll, "greedy", "distribution", "acceptance")
resample_from_target = _mutant(classics.ResampleFromTarget, "distribution")
off_by_one_row = _mutant(classics.OffByOneRow, "greedy", "distribution")
eos_missed_in_block = _mutant(classics.EosMissedInBlock, "stopping")
no_rollback = _mutant(classics.NoRollback, "greedy", "distribution")
over_accept = _mutant(classics.OverAccept, "distribution")
bonus_from_draft = _mutant(classics.BonusFromDraft, "greedy", "distribution")

MUTANTS: Mapping[str, Callable[[ModelPair], EngineDecoder]] = {
    name: value for name, value in list(globals().items()) if isinstance(value, Mutant)
}
