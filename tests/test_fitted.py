"""Heads and layers fitted to tiny targets are of use, and the check for that can still fail."""

from __future__ import annotations

import functools

import pytest
import torch

from harness.adapters import load_decoder
from harness.adapters.reference import EngineDecoder
from harness.checks import speed_evidence, stopping
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.models import load_pair
from harness.verdict import Status, Verdict
from reference_impl.drafters.eagle import EagleDrafter
from reference_impl.drafters.eagle_tree import EagleTree
from reference_impl.drafters.fitted import fitted_eagle
from reference_impl.drafters.untrained import untrained_eagle
from reference_impl.tree import TreeEngine

SMOKE = PROFILES["smoke"]
FAMILIES = ("eagle", "eagle-tree", "eagle-cascade", "medusa", "medusa-tree")
pair = functools.cache(load_pair)


def target_calls(decoder: EngineDecoder, name: str) -> Verdict:
    return speed_evidence.target_calls(Subject(decoder, pair(name), "decoder"), SMOKE)


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_are_accepted_on_easy_text(family: str) -> None:
    decoder = load_decoder(f"reference-{family}", pair("tiny-self"))
    assert isinstance(decoder, EngineDecoder)
    verdict = target_calls(decoder, "tiny-self")
    assert verdict.status is Status.PASS, verdict.message
    assert verdict.evidence["accepted"] > 20


def test_a_layer_that_guesses_at_random_is_seen() -> None:
    tiny = pair("tiny-self")
    drafter = EagleDrafter(untrained_eagle(tiny.target), tiny.target, tiny.vocab_size)
    verdict = target_calls(EngineDecoder(tiny, drafter), "tiny-self")
    assert verdict.status is Status.FAIL
    assert "saves nothing" in verdict.message


def test_the_same_target_gives_the_same_weights() -> None:
    first, second = (fitted_eagle(pair("micro").target, 8).state_dict() for _ in range(2))
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name


def test_a_pair_with_a_bad_draft_has_a_bad_layer_too() -> None:
    decoder = load_decoder("reference-eagle", pair("tiny-bad"))
    assert isinstance(decoder, EngineDecoder)
    assert isinstance(decoder.engine.drafter, EagleDrafter)
    weights = untrained_eagle(pair("tiny-bad").target).state_dict()
    assert torch.equal(decoder.engine.drafter.layer.state_dict()["fc.weight"], weights["fc.weight"])


def test_a_tree_has_no_path_longer_than_its_nodes() -> None:
    """A row at the end of the context has slots for the nodes of a tree behind it, not for K."""
    tiny = pair("tiny-gpt2")
    drafter = EagleTree(untrained_eagle(tiny.target), tiny.target, tiny.vocab_size)
    subject = Subject(EngineDecoder(tiny, drafter, TreeEngine), tiny, "decoder")
    verdict = stopping.context(subject, SMOKE)
    assert verdict.status is Status.PASS, verdict.message
