"""Compiled models: the same output, and no graph that is made twice."""

from __future__ import annotations

import pytest
from torch._dynamo.testing import CompileCounter

from harness.adapters.reference import EngineDecoder
from harness.contract import Request, Sampling
from harness.models import ModelPair
from reference_impl.compiled import compiled
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from tests.decoding import exact


def engine(pair: ModelPair, counter: CompileCounter | None = None) -> SpeculativeEngine:
    target, draft = pair.target, pair.draft
    if counter is not None:
        target, draft = compiled(target, counter), compiled(draft, counter)
    return SpeculativeEngine(target, ModelDrafter(draft, pair.vocab_size), pair.vocab_size)


@pytest.mark.parametrize("name", ["tiny-window", "tiny-gpt2"])
def test_the_output_is_that_of_the_models_as_they_are(name: str) -> None:
    pair = exact(name)
    requests = [
        Request(prompt=(5, 6, 7, 8, 9, 10, 11, 12, 13), max_new_tokens=20, draft_tokens=3),
        Request(prompt=(1,), max_new_tokens=12, draft_tokens=1),
        Request(prompt=(2, 3), max_new_tokens=15, sampling=Sampling(temperature=1.0), seed=4),
    ]
    expected = engine(pair).generate(requests)
    found = engine(pair, CompileCounter()).generate(requests)
    assert [c.tokens for c in found] == [c.tokens for c in expected]
    assert [c.rounds for c in found] == [c.rounds for c in expected]


def test_a_longer_text_needs_no_other_graph() -> None:
    pair, counter = exact("tiny"), CompileCounter()
    decoder = engine(pair, counter)

    def graphs(prompt: int, new: int) -> int:
        decoder.generate([Request(prompt=(3,) * prompt, max_new_tokens=new, draft_tokens=3)])
        return counter.frame_count

    first = [graphs(4, 20), graphs(4, 21), graphs(4, 22), graphs(4, 23)][-1]
    # Blocks of 1 to 4 tokens for the target, of 1 and 2 for the draft.
    assert 2 <= first <= 6
    assert graphs(9, 23) <= 6
    settled = counter.frame_count
    assert [graphs(length, 30) for length in (5, 12, 40)] == [settled] * 3


def test_the_adapter_names_a_backend() -> None:
    from harness.adapters import load_decoder

    decoder = load_decoder("reference", exact("tiny"), {"compile": "eager"})
    assert isinstance(decoder, EngineDecoder)
    request = Request(prompt=(1, 2, 3), max_new_tokens=8)
    plain = load_decoder("reference", exact("tiny")).generate([request])
    assert decoder.generate([request])[0].tokens == plain[0].tokens
