"""Small libraries on PyPI: what can be told of their adapters without the libraries."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from harness.adapters import NotInstalledError, decoder_names, load_decoder
from harness.adapters.engines import ENGINES, Engine
from harness.adapters.peers import PEERS
from harness.adapters.peers.base import (
    AnyOf,
    BatchedPeer,
    IdTokenizer,
    Peer,
    completion,
    from_text,
    load,
    one_eos,
    tempered,
)
from harness.adapters.peers.core_deepinfer import _Recomputing
from harness.adapters.peers.flashspec import _unpadded
from harness.contract import CAPABILITIES, Completion, Request
from harness.models import ModelPair, load_pair
from harness.third_party import RECIPES

PROMPT = (5, 9, 33, 2, 17)


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return load_pair("tiny")


def ask(**how: object) -> Request:
    return Request(prompt=PROMPT, **{"max_new_tokens": 4, **how})


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_a_decoder_with_a_recipe_and_capabilities_of_the_contract(name: str) -> None:
    engine = ENGINES[name]
    assert isinstance(engine, Engine)
    assert name in decoder_names()
    assert (RECIPES / engine.environment).is_file()
    factory = pkgutil.resolve_name(engine.factory)
    made = factory.func if isinstance(factory, functools.partial) else factory
    assert issubclass(made, Peer)
    assert made.capabilities <= set(CAPABILITIES)
    assert f"{made.package}==" in (RECIPES / engine.environment).read_text()


def test_there_are_enough_of_them() -> None:
    assert len({module for module, _ in PEERS.values()}) >= 8


def test_an_absent_peer_says_how_to_install_it(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    with pytest.raises(NotInstalledError) as error:
        load_decoder("flashspec", pair)
    assert "ci/third_party --install peers-transformers-5.24" in str(error.value)


def test_several_eos_ids_pass_for_one() -> None:
    eos = one_eos(ask(eos=(3, 7)))
    assert eos == 3
    assert eos != 4
    assert [2, 7, 3].index(eos) == 1
    assert (torch.tensor([[1, 7]]) == eos).tolist() == [[False, True]]
    assert one_eos(ask(eos=(0,))) == 0
    assert not isinstance(one_eos(ask(eos=(0,))), AnyOf)
    assert one_eos(ask()) is None


def test_ids_survive_a_library_that_takes_text() -> None:
    tokenizer = IdTokenizer()
    assert tokenizer.encode(PROMPT).tolist() == [list(PROMPT)]
    for prompts in (PROMPT, [PROMPT]):
        encoded = tokenizer(prompts, return_tensors="pt")
        assert encoded.input_ids.tolist() == [list(PROMPT)]
        assert encoded["attention_mask"].tolist() == [[1] * len(PROMPT)]
    assert from_text(tokenizer.decode(torch.tensor([4, 0, 63]))) == [4, 0, 63]


def test_a_model_is_tempered_for_as_long_as_asked(pair: ModelPair) -> None:
    text = torch.tensor([PROMPT])
    plain = pair.target(text).logits
    with tempered(0.5, pair.target):
        assert torch.allclose(pair.target(text).logits, plain * 2)
    with tempered(0.0, pair.target):  # greedy
        assert torch.equal(pair.target(text).logits, plain)
    assert torch.equal(pair.target(text).logits, plain)


def test_a_model_from_files_samples_from_its_whole_law(pair: ModelPair) -> None:
    model = load(pair.files(["hf"]), "target")
    assert model.generation_config.top_k == 0
    text = torch.tensor([PROMPT])
    assert torch.equal(model(text).logits, pair.target(text).logits)


class Counting(BatchedPeer):
    """Says how many rows its call had."""

    package = "none"
    capabilities = frozenset({"greedy"})

    def __init__(self) -> None:  # no models
        pass

    def alike(self, request: Request) -> tuple[int, ...]:
        return len(request.prompt), request.max_new_tokens

    def together(self, requests: Sequence[Request]) -> list[Completion]:
        return [completion([len(requests), r.prompt[0]], r) for r in requests]


def test_rows_that_are_alike_share_a_call_and_keep_their_order() -> None:
    rows = [
        Request(prompt=(8,), max_new_tokens=2),
        Request(prompt=(9, 1), max_new_tokens=2),
        Request(prompt=(7,), max_new_tokens=2),
        Request(prompt=(6,), max_new_tokens=2, seed=5),
        Request(prompt=(5,), max_new_tokens=3),
    ]
    answers = [answer.tokens for answer in Counting().generate(rows)]
    assert answers == [[2, 8], [1, 9], [2, 7], [1, 6], [1, 5]]


def test_a_seed_is_for_one_request_alone() -> None:
    class Drawing(Counting):
        def together(self, requests: Sequence[Request]) -> list[Completion]:
            return [completion([int(torch.randint(10**6, ()))], r) for r in requests]

    one, unseeded, same = Drawing().generate([ask(seed=1), ask(), ask(seed=1)])
    assert one.tokens == same.tokens
    torch.manual_seed(0)
    first = Drawing().generate([ask()])[0].tokens
    torch.manual_seed(0)
    Drawing().generate([ask(seed=1)])
    assert Drawing().generate([ask()])[0].tokens == first
    assert unseeded.tokens != one.tokens


def test_only_what_fills_a_row_up_is_no_part_of_it() -> None:
    assert _unpadded(torch.tensor([4, -1, 6, -1, -1])) == [4, -1, 6]
    assert _unpadded(torch.tensor([-1, -1])) == []


def test_the_form_of_a_recomputing_model_gives_the_same_logits(pair: ModelPair) -> None:
    model = _Recomputing(pair.target, pair.vocab_size)
    forward = model.prefill(PROMPT[:-1])
    stepped = model.step(forward.state, PROMPT[-1])
    expected = pair.target(torch.tensor([PROMPT])).logits[0].numpy()
    assert (stepped.logits == expected).all()
    assert stepped.state == PROMPT
