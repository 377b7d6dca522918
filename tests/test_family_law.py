"""Every family's law is the target's, with adaptive K and a reduced vocabulary too.

Exact, as in ``test_engine_law.py``: every way the coins can fall, without a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_laws import (
    CASES,
    Watched,
    WatchedBlock,
    WatchedBranches,
    WatchedMatching,
    WatchedTree,
    Watching,
    assert_exact,
    distance,
    engine_law,
    target_law,
)

from harness.models import ModelPair, load_pair
from reference_impl.batch import Batch
from reference_impl.branches import BranchDrafter
from reference_impl.cache import Ints
from reference_impl.drafters.cascade import CascadeDrafter, ModelFollower
from reference_impl.drafters.eagle import EagleDrafter, EagleLayer
from reference_impl.drafters.eagle_tree import EagleTree
from reference_impl.drafters.early_exit import EarlyExitDrafter
from reference_impl.drafters.medusa import MedusaDrafter, MedusaHeads, MedusaTree
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.reduced import ReducedHead
from reference_impl.drafters.suffix import SuffixDrafter
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa
from reference_impl.proposal import Drafter, Proposal

REDUCED = (1, 2, 3, 6)  # of eight ids


def eagle_layer(pair: ModelPair, reduced: bool = False) -> EagleLayer:
    layer = untrained_eagle(pair.target)
    layer.vocabulary = torch.tensor(REDUCED) if reduced else None
    return layer


def medusa_heads(pair: ModelPair, reduced: bool = False) -> MedusaHeads:
    heads = untrained_medusa(pair.target, 2)
    if reduced:
        head = ReducedHead(pair.target.get_output_embeddings().weight, torch.tensor(REDUCED))
        for blocks in heads:
            blocks[-1] = head
    return heads


def model(pair: ModelPair, stop_below: float = 0.0) -> ModelDrafter:
    return ModelDrafter(pair.draft, pair.vocab_size, stop_below)


def eagle(pair: ModelPair, reduced: bool = False, stop_below: float = 0.0) -> EagleDrafter:
    return EagleDrafter(eagle_layer(pair, reduced), pair.target, pair.vocab_size, stop_below)


def medusa(pair: ModelPair, reduced: bool = False, stop_below: float = 0.0) -> MedusaDrafter:
    return MedusaDrafter(medusa_heads(pair, reduced), pair.vocab_size, stop_below)


def cascade(pair: ModelPair) -> CascadeDrafter:
    second = ModelFollower(pair.draft, pair.vocab_size)
    return CascadeDrafter(SuffixDrafter(), second, pair.vocab_size)


FAMILIES: dict[str, tuple[type[Watching], Callable[[ModelPair], Drafter]]] = {
    "early exit": (Watched, lambda pair: EarlyExitDrafter(pair.target, 1, pair.vocab_size)),
    "suffix": (Watched, lambda pair: SuffixDrafter()),
    "cascade": (Watched, cascade),
    "cascade to an eagle": (
        Watched,
        lambda pair: CascadeDrafter(SuffixDrafter(), eagle(pair), pair.vocab_size),
    ),
    "medusa": (Watched, medusa),
    "medusa, reduced": (Watched, lambda pair: medusa(pair, True)),
    "medusa by blocks": (WatchedBlock, medusa),
    "eagle": (Watched, eagle),
    "eagle, reduced": (Watched, lambda pair: eagle(pair, True)),
    "eagle by blocks": (WatchedBlock, eagle),
    "eagle by matching": (WatchedMatching, eagle),
    "medusa tree": (WatchedTree, lambda pair: MedusaTree(medusa_heads(pair), pair.vocab_size)),
    "medusa tree, reduced": (
        WatchedTree,
        lambda pair: MedusaTree(medusa_heads(pair, True), pair.vocab_size),
    ),
    "eagle tree": (
        WatchedTree,
        lambda pair: EagleTree(eagle_layer(pair), pair.target, pair.vocab_size, 2, 4),
    ),
    "eagle tree, reduced": (
        WatchedTree,
        lambda pair: EagleTree(eagle_layer(pair, True), pair.target, pair.vocab_size, 2, 4),
    ),
    "branches": (WatchedBranches, lambda pair: BranchDrafter(pair.draft, pair.vocab_size)),
}


def watched(pair: ModelPair, family: str) -> Watching:
    decoder, drafter = FAMILIES[family]
    return decoder(pair.target, drafter(pair), pair.vocab_size)


CASES_OF = {
    "suffix": ("everything", "long", "grammar", "stop"),  # a prompt without repetition: no drafts
    "eagle by matching": ("narrow", "long"),  # all positions draw: many ways
}


def laws() -> list[tuple[str, str]]:
    usual = ("narrow", "everything", "long", "grammar", "stop")
    return [(family, case) for family in FAMILIES for case in CASES_OF.get(family, usual)]


@pytest.mark.parametrize(("family", "case"), laws())
def test_the_law_of_a_family_is_the_law_of_the_target(
    family: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_pair("micro", dtype="float64")
    decoder = watched(pair, family)
    assert_exact(decoder, pair, CASES[case], monkeypatch)
    assert any(accepted > 0 for _, accepted in decoder.judged)
    assert any(accepted < drafted for drafted, accepted in decoder.judged)


# With thresholds of which both sides are met.
ADAPTIVE: dict[str, tuple[type[Watching], Callable[[ModelPair], Drafter]]] = {
    "model": (Watched, lambda pair: model(pair, 0.5)),
    "model by blocks": (WatchedBlock, lambda pair: model(pair, 0.5)),
    "medusa": (Watched, lambda pair: medusa(pair, stop_below=0.4)),
    "eagle": (Watched, lambda pair: eagle(pair, stop_below=0.3)),
    "eagle by blocks": (WatchedBlock, lambda pair: eagle(pair, stop_below=0.3)),
}


@pytest.mark.parametrize(
    ("family", "case"),
    [(family, "long") for family in ADAPTIVE]
    + [(family, "narrow") for family in ADAPTIVE if family != "medusa"],
)
def test_a_drafter_that_stops_where_it_is_unsure_is_exact(
    family: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_pair("micro", dtype="float64")
    decoder, drafter = ADAPTIVE[family]
    watched = decoder(pair.target, drafter(pair), pair.vocab_size)
    assert_exact(watched, pair, CASES[case], monkeypatch)
    stops = watched.stops - {(3, 0)}  # nothing is known of a text of one token
    assert any(0 < asked == proposed for asked, proposed in stops)
    assert any(proposed < asked for asked, proposed in stops)


class StopsByTheDraw(ModelDrafter):
    """Takes a draft back once it is drawn."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        taken_back = (proposal.tokens[:, 0] > 3).numpy()
        return replace(proposal, count=np.where(taken_back, 0, proposal.count))


class Renormalised(MedusaDrafter):
    """Says that it could have drafted what it could not: q is not zero outside its vocabulary."""

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        proposal = super().propose(batch, count)
        return replace(proposal, q=None if proposal.q is None else (proposal.q + 0.05) / 1.4)


@pytest.mark.parametrize("wrong", [StopsByTheDraw, Renormalised])
def test_a_wrong_drafter_has_another_law(
    wrong: type[Drafter], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, request = load_pair("micro", dtype="float64"), CASES["narrow"]
    learned = medusa_heads(pair, True) if wrong is Renormalised else pair.draft
    watched = Watched(pair.target, wrong(learned, pair.vocab_size), pair.vocab_size)
    law = engine_law(watched, request, monkeypatch)
    assert distance(law, target_law(pair, request)) > 1e-3
