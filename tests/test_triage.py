"""A greedy divergence looked at closely: gaps from every shape and in float64."""

from __future__ import annotations

import copy
import dataclasses
import functools

import msgspec
import pytest

from harness import oracle
from harness.checks import greedy, triage
from harness.checks.prompts import random_prompt
from harness.contract import Completion, Request, Sampling
from harness.models import load_pair

load = functools.cache(load_pair)
WAYS = {"whole text", "one token", "K + 1 tokens", "float64"}
PENALISED = Sampling(repetition_penalty=1.4, presence_penalty=0.3, logit_bias={3: 1.0})


def diverging(request: Request, name: str, position: int) -> tuple[list[int], oracle.Divergence]:
    """The greedy output with another token at ``position``, and what the oracle says of it."""
    pair = load(name)
    output: list[int] = []
    for _ in range(position + 3):
        scores, _ = oracle.laws_along(pair.target, request, [*output, 0], pair.vocab_size)
        best = int(scores[-1].argmax())
        output.append(best ^ 2 if len(output) == position else best)
    [found] = [
        d for d in oracle.greedy_divergences(pair, request, output) if d.position == position
    ]
    return output, found


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2", "tiny-window", "tiny-mamba", "tiny-padded"])
@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("sampling", [Sampling(), PENALISED])
def test_every_way_gives_the_oracles_gap(name: str, length: int, sampling: Sampling) -> None:
    prompt = random_prompt(load(name), length, 3)
    request = Request(prompt=prompt, max_new_tokens=8, sampling=sampling, draft_tokens=3)
    for position in (0, 4):
        output, found = diverging(request, name, position)
        gaps = triage.gaps(load(name), request, output, found)
        assert gaps.keys() == WAYS
        assert list(gaps.values()) == pytest.approx([found.gap] * 4, abs=1e-4)
        assert triage.spread(gaps) < 1e-4


def test_an_exact_tie_has_no_gap_and_no_spread_however_it_is_computed() -> None:
    """Even tokens have the output row of the odd one after them."""
    request = Request(prompt=random_prompt(load("tiny-ties"), 5, 1), max_new_tokens=4)
    scores, _ = oracle.laws_along(load("tiny-ties").target, request, [0], 64)
    best = int(scores[0].argmax())
    [found] = oracle.greedy_divergences(load("tiny-ties"), request, [best ^ 1])
    gaps = triage.gaps(load("tiny-ties"), request, [best ^ 1], found)
    assert set(gaps.values()) == {0.0}
    assert not greedy.near_tie(load("tiny-ties"), found, triage.spread(gaps))


def test_a_model_too_large_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage, "LARGEST_DOUBLE", 10)
    request = Request(prompt=(1, 2, 3), max_new_tokens=4)
    output, found = diverging(request, "tiny", 1)
    assert triage.gaps(load("tiny"), request, output, found).keys() == WAYS - {"float64"}


def test_the_spread_at_the_place_counts_where_it_is_more_than_the_models_noise() -> None:
    found = oracle.Divergence(0, 1, 2, gap=0.01)
    assert not greedy.near_tie(load("tiny"), found)
    assert not greedy.near_tie(load("tiny"), found, spread=0.002)
    assert greedy.near_tie(load("tiny"), found, spread=0.003)


def test_in_bfloat16_two_logits_can_part_that_float64_holds_together() -> None:
    """The target rounds what a decoder need not: the spread says by how much."""
    pair = load("tiny")
    rounded = dataclasses.replace(pair, target=copy.deepcopy(pair.target).bfloat16())
    request = Request(prompt=random_prompt(pair, 9, 2), max_new_tokens=4)
    output, found = diverging(request, "tiny", 2)
    assert triage.spread(triage.gaps(rounded, request, output, found)) > 1e-3


def test_a_fail_shows_the_gaps_and_the_noise() -> None:
    request = Request(prompt=(1, 2, 3), max_new_tokens=4)
    output, found = diverging(request, "tiny", 1)
    completion = Completion(tokens=output[:4], finish_reason="length")
    problem, evidence = greedy.problem_of(load("tiny"), request, completion)
    assert problem.startswith(f"token 1 is {found.got}")
    assert evidence["gaps"].keys() == WAYS
    assert evidence["gap"] > greedy.NOISE_MARGIN * evidence["noise"]
    assert msgspec.json.decode(msgspec.json.encode(evidence)) == evidence
