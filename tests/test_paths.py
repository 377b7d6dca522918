"""The engine on paths that keep state: exact, and what each of them saves or costs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from harness import oracle
from harness.adapters import load_decoder
from harness.adapters.reference import EngineDecoder, branches, engine, preemption, prefix_cache
from harness.checks import greedy
from harness.checks.prompts import random_prompt, repetitive_prompt
from harness.contract import Request, Sampling
from harness.models import ModelPair, load_pair
from harness.stats import chi_square
from reference_impl.preemption import PreemptingEngine

load = functools.cache(load_pair)
PATHS = [prefix_cache, preemption, branches]
PAIRS = ["tiny", "tiny-bad", "tiny-gpt2", "tiny-window", "tiny-mamba"]
ALPHA = 1e-6


def requests_of(pair: ModelPair) -> list[Request]:
    return [
        Request(
            prompt=(repetitive_prompt if seed % 3 == 2 else random_prompt)(pair, length, seed),
            max_new_tokens=5 + 3 * seed,
            draft_tokens=1 + seed % 4,
            speculate=seed % 4 != 3,
        )
        for seed, length in enumerate((1, 2, 9, 9, 17, 30))
    ]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("path", PATHS)
def test_a_path_decodes_greedily_as_the_target_does(
    path: Callable[[ModelPair], EngineDecoder], pair: str
) -> None:
    decoder, requests = path(load(pair)), requests_of(load(pair))
    for asked in (requests, requests[::-1], *[[request] for request in requests]):
        for request, completion in zip(asked, decoder.generate(asked), strict=True):
            assert not greedy.problem_of(load(pair), request, completion)[0]


@pytest.mark.parametrize("pair", ["micro", "micro-bad"])
@pytest.mark.parametrize("path", PATHS)
def test_a_path_samples_as_the_target_does(
    path: Callable[[ModelPair], EngineDecoder], pair: str
) -> None:
    """One by one in small batches, so that what is kept between them takes part."""
    hot = Sampling(temperature=1.2)
    law = oracle.joint(
        oracle.joint_law(
            load(pair).target, Request(prompt=(3, 1, 4), max_new_tokens=4, sampling=hot), 3, 8
        )
    ).numpy()
    requests = [
        Request(prompt=(3, 1, 4), max_new_tokens=4, sampling=hot, seed=seed, draft_tokens=3)
        for seed in range(4000)
    ]
    decoder = path(load(pair))
    completions = [c for i in range(0, 4000, 200) for c in decoder.generate(requests[i : i + 200])]
    tokens = np.array([completion.tokens[:3] for completion in completions])
    counts = np.bincount(tokens @ 8 ** np.arange(2, -1, -1), minlength=len(law))
    assert chi_square.goodness_of_fit(counts, law).p_value > ALPHA


def fed(decoder: EngineDecoder, prompt: tuple[int, ...]) -> int:
    """Positions of the target that an answer of one token took."""
    (completion,) = decoder.generate([Request(prompt=prompt, max_new_tokens=1)])
    assert completion.metrics is not None
    assert completion.metrics.target_tokens is not None
    return completion.metrics.target_tokens


def test_a_prefix_is_fed_once() -> None:
    pair = load("tiny")
    decoder, prompt = prefix_cache(pair), random_prompt(pair, 20, 1)
    other = random_prompt(pair, 20, 2)
    assert fed(decoder, prompt) == fed(engine(pair), prompt) == 20
    assert fed(decoder, prompt) == 1
    assert fed(decoder, (*prompt[:12], *other[:8])) == 8
    assert fed(decoder, (*prompt, *other)) == 20
    assert fed(decoder, prompt[:5]) == 1
    for seed in range(3, 7):  # as many as it remembers
        fed(decoder, random_prompt(pair, 20, seed))
    assert fed(decoder, prompt) == 20


def test_an_answer_is_remembered_up_to_where_it_ended() -> None:
    pair = load("tiny-self")
    prompt = random_prompt(pair, 6, 3)
    path = oracle.greedy_path(pair, prompt, 6)
    decoder = prefix_cache(pair)
    ended = Request(prompt=prompt, max_new_tokens=6, eos=(path[1],), draft_tokens=5)
    (answer,) = decoder.generate([ended])
    assert answer.tokens == path[:2]
    # Two tokens of the answer, of which the last was drafted and fed but opens no block.
    assert fed(decoder, (*prompt, *path)) == 5


def test_a_row_that_comes_back_is_fed_all_its_text() -> None:
    pair = load("tiny")
    request = Request(prompt=random_prompt(pair, 10, 1), max_new_tokens=20)

    class Often(PreemptingEngine):
        every = 1

    often = EngineDecoder(pair, engine(pair).engine.drafter, engine=Often)
    (one,), (other,) = engine(pair).generate([request]), often.generate([request])
    assert one.tokens == other.tokens
    assert one.rounds == other.rounds
    assert one.metrics is not None
    assert other.metrics is not None
    lengths = np.cumsum([10, *[entry.accepted + 1 for entry in one.rounds or []][:-1]])
    assert other.metrics.target_tokens == one.metrics.target_tokens + int((lengths - 1).sum())


def test_the_other_branch_is_entered_now_and_then() -> None:
    """Where the draft's second choice is the target's, a chain alone accepts nothing."""
    pair = load("tiny")
    request = Request(prompt=random_prompt(pair, 5, 1), max_new_tokens=60, draft_tokens=3)
    rounds = [
        decoder.generate([request])[0].rounds or [] for decoder in (engine(pair), branches(pair))
    ]
    nothing = [sum(not entry.accepted for entry in some) / len(some) for some in rounds]
    assert nothing[1] < nothing[0]
    assert len(rounds[1]) < len(rounds[0])


def test_paths_have_names() -> None:
    for name in ("reference-prefix-cache", "reference-preemption", "reference-branches"):
        decoder = load_decoder(name, load("tiny"))
        assert ("model_draft" in decoder.capabilities) == (name != "reference-branches")


@pytest.mark.parametrize("pair", ["tiny", "tiny-mamba"])
def test_states_are_taken_and_put_back(pair: str) -> None:
    """A text that was fed in one cache goes on in another one."""
    decoder = engine(load(pair)).engine
    ids = torch.tensor([random_prompt(load(pair), 9, 1)])
    with torch.inference_mode():
        one, other = decoder.cache(12), decoder.cache(10)
        whole = one.forward(ids, np.array([0]))[:, 8]
        other.put([1], one.take(0, 8), 2)
        last = ids[:, 8:].expand(2, -1)
        both = other.forward(last, np.array([8, 8]))[:, 0]
    assert torch.allclose(both[1], whole[0], atol=1e-5)
    assert not torch.allclose(both[0], whole[0], atol=1e-2)
