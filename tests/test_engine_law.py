"""The engine's law with a draft model and a lookup, by every rule that is exact: the target's."""

from __future__ import annotations

import pytest
import torch
from engine_laws import (
    CASES,
    Watched,
    WatchedBlock,
    WatchedMatching,
    WatchedTree,
    Watching,
    assert_exact,
    distance,
    engine_law,
    target_law,
)
from torch import Tensor

from harness.models import ModelPair, load_pair
from reference_impl import acceptance, engine
from reference_impl.drafters.branching import BranchingDrafter
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.proposal import Drafter, Proposal


def drafter_of(pair: ModelPair, kind: str) -> Drafter:
    if kind.startswith("tree"):
        return BranchingDrafter(pair.draft, pair.vocab_size, (2, 2), kind.endswith("replaced"))
    if kind == "ngram":
        return NgramDrafter()
    return ModelDrafter(pair.draft, pair.vocab_size)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("name", "drafter"), [("micro", "model"), ("micro-hostile", "model"), ("micro", "ngram")]
)
def test_the_law_of_the_engine_is_the_law_of_the_target(
    name: str, drafter: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_pair(name, dtype="float64")
    request = CASES[case]
    watched = Watched(pair.target, drafter_of(pair, drafter), pair.vocab_size)
    assert_exact(watched, pair, request, monkeypatch)


RULES = [
    *((WatchedBlock, case) for case in ("narrow", "wide", "long", "grammar", "stop")),
    *((WatchedMatching, case) for case in ("narrow", "whole")),  # all positions draw: many ways
]


@pytest.mark.parametrize(("rule", "case"), RULES)
@pytest.mark.parametrize(
    ("name", "drafter"), [("micro", "model"), ("micro-hostile", "model"), ("micro", "ngram")]
)
def test_other_rules_are_exact_too(
    name: str, drafter: str, rule: type[Watching], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = load_pair(name, dtype="float64")
    request = CASES[case]
    watched = rule(pair.target, drafter_of(pair, drafter), pair.vocab_size)
    assert_exact(watched, pair, request, monkeypatch)


@pytest.mark.parametrize("kind", ["tree", "tree replaced"])
@pytest.mark.parametrize(
    ("name", "case"), [("micro", "whole"), ("micro-hostile", "whole"), ("micro", "stop")]
)
def test_trees_are_exact(name: str, case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, request = load_pair(name, dtype="float64"), CASES[case]
    watched = WatchedTree(pair.target, drafter_of(pair, kind), pair.vocab_size)
    assert_exact(watched, pair, request, monkeypatch)


class OverAccepts(Watched):
    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return super().accept(p * 1.02, q, u)


class FromTarget(Watched):
    def choose(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        return engine.inverse_cdf(p, u)


class BlockWithoutWeight(WatchedBlock):
    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        accepted, _ = super().judge(p, proposal, count, u)
        row = torch.arange(len(p))
        q = self.q_rejected(proposal, accepted, count)  # the residual of token-wise rejection
        coin = u.gather(1, count.unsqueeze(1)).squeeze(1)
        return accepted, acceptance.inverse_cdf(engine.residual(p[row, accepted], q), coin)


@pytest.mark.parametrize(
    ("wrong", "name", "case"),
    [
        (OverAccepts, "micro-bad", "whole"),
        (FromTarget, "micro-bad", "whole"),
        (BlockWithoutWeight, "micro", "wide"),
    ],
)
def test_a_wrong_engine_has_another_law(
    wrong: type[Watching], name: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, request = load_pair(name, dtype="float64"), CASES[case]
    watched = wrong(pair.target, drafter_of(pair, "model"), pair.vocab_size)
    law = engine_law(watched, request, monkeypatch)
    assert sum(law.values()) == pytest.approx(1, abs=1e-6)
    assert distance(law, target_law(pair, request)) > 1e-3
