"""The real pair, as far as CI can afford it."""

from __future__ import annotations

import msgspec
import pytest

from harness.adapters import load_decoder
from harness.bench.tasks import KNOWN
from harness.bench.workload import load_workload
from harness.checks import greedy
from harness.contract import Completion, Request
from harness.models import ModelPair, PairError, load_pair

NEW_TOKENS = 16


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    try:
        return load_pair("smollm2-135m")
    except PairError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def requests(pair: ModelPair) -> list[Request]:
    tasks = ["chat", "code", "math", "creative"]
    return [
        Request(prompt=prompt.ids, max_new_tokens=NEW_TOKENS, draft_tokens=3, eos=pair.eos)
        for prompt in load_workload(pair, tasks, 1, NEW_TOKENS)
    ]


@pytest.fixture(scope="module")
def plain(pair: ModelPair, requests: list[Request]) -> list[Completion]:
    """What transformers' own plain decoding gives."""
    decoder = load_decoder("transformers-assisted", pair)
    return decoder.generate([msgspec.structs.replace(r, speculate=False) for r in requests])


@pytest.mark.parametrize("name", ["reference", "reference-ngram", "transformers-assisted"])
def test_speculation_gives_what_transformers_gives_plainly(
    name: str, pair: ModelPair, requests: list[Request], plain: list[Completion]
) -> None:
    decoder = load_decoder(name, pair)
    for request, expected in zip(requests, plain, strict=True):
        (completion,) = decoder.generate([request])
        problem, evidence = greedy.problem_of(pair, request, completion)
        assert not problem
        assert completion.tokens == expected.tokens or evidence["near_ties"]


def test_the_trained_draft_is_of_use(pair: ModelPair, requests: list[Request]) -> None:
    """Far from chance (1 in 49,152); the figures are in the draft's own README."""
    completions = load_decoder("reference", pair).generate(requests)
    rounds = [r for completion in completions for r in completion.rounds or []]
    assert sum(r.accepted for r in rounds) / sum(r.drafted for r in rounds) > 0.1


def test_every_task_leaves_room_for_an_answer(pair: ModelPair) -> None:
    prompts = load_workload(pair, KNOWN, None, 96)
    assert {prompt.task for prompt in prompts} == set(KNOWN)
    assert max(len(prompt.ids) for prompt in prompts) < 700
    assert len({prompt.ids for prompt in prompts}) == len(prompts) >= 24 * len(KNOWN)
