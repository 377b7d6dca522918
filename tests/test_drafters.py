"""Drafting families on the engine: greedy ids are plain decoding's, and proposals what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from decoding import HOT, ONE_TOKEN, assert_alone_as_together, assert_plain, exact
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from strategies import examples, token_lists

from harness.contract import Request
from harness.models import ModelPair, load_pair
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.cascade import CascadeDrafter, ModelFollower
from reference_impl.drafters.eagle import EagleDrafter, load_eagle
from reference_impl.drafters.early_exit import EarlyExitDrafter, first_layers
from reference_impl.drafters.medusa import MedusaDrafter, load_medusa
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.drafters.suffix import SuffixAutomaton, SuffixDrafter
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Drafter, Proposal

Make = Callable[[ModelPair], Drafter]


def medusa(pair: ModelPair, count: int = 3) -> MedusaDrafter:
    return MedusaDrafter(untrained_medusa(pair.target, count), pair.vocab_size)


def eagle(pair: ModelPair, stop_below: float = 0.0) -> EagleDrafter:
    layer = untrained_eagle(pair.target)
    return EagleDrafter(layer, pair.target, pair.vocab_size, stop_below=stop_below)


def cascade(pair: ModelPair, lookup: NgramDrafter) -> CascadeDrafter:
    return CascadeDrafter(lookup, ModelFollower(pair.draft, pair.vocab_size), pair.vocab_size)


def follower(pair: ModelPair) -> EagleDrafter:
    return EagleDrafter(untrained_eagle(pair.target), pair.target, pair.vocab_size)


DRAFTERS: dict[str, Make] = {
    "early exit": lambda pair: EarlyExitDrafter(pair.target, 1, pair.vocab_size),
    "suffix": lambda pair: SuffixDrafter(),
    "cascade": lambda pair: cascade(pair, NgramDrafter(2, 2)),
    "cascade of a suffix": lambda pair: cascade(pair, SuffixDrafter(2)),
    "cascade to an eagle": lambda pair: CascadeDrafter(
        SuffixDrafter(1), follower(pair), pair.vocab_size
    ),
    "medusa": medusa,
    "eagle": eagle,
    "adaptive eagle": lambda pair: eagle(pair, 0.2),
    "adaptive model": lambda pair: ModelDrafter(pair.draft, pair.vocab_size, 0.3),
}
PAIRS = ["tiny", "tiny-bad", "tiny-gpt2", "tiny-window", "tiny-mamba"]

WIDTH = 32  # of the tiny models' states


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_ids_are_those_of_plain_decoding(drafter: str, name: str) -> None:
    pair = exact(name)
    rows = [
        Request(prompt=prompt, max_new_tokens=n, draft_tokens=k)
        for prompt, n, k in (
            ((1, 2, 3), 24, 4),
            ((5, 6, 7, 5, 6, 7, 5, 6), 30, 6),
            ((9,), 12, 1),
            ((4, 4, 4, 4), 40, 3),
            ((2, 3), 1, 2),
        )
    ]
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_plain(engine, pair, rows)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_draws_the_same_alone_and_in_a_batch(drafter: str) -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=(i, i + 1, i), max_new_tokens=20, draft_tokens=3, sampling=HOT, seed=i)
        for i in range(6)
    ]
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_alone_as_together(engine, rows)


@pytest.mark.parametrize("rows", ONE_TOKEN)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_texts_of_one_token_beside_one_that_does_not_draft(drafter: str, rows: str) -> None:
    pair = exact("tiny")
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_plain(engine, pair, ONE_TOKEN[rows])


# Early exit


def test_an_exit_shares_the_weights_and_leaves_the_target_whole() -> None:
    target = exact("tiny").target
    draft = first_layers(target, 1)
    assert (draft.config.num_hidden_layers, target.config.num_hidden_layers) == (1, 2)
    assert (len(draft.model.layers), len(target.model.layers)) == (1, 2)
    own = {id(parameter) for parameter in target.parameters()}
    assert {id(parameter) for parameter in draft.parameters()} < own


def test_an_exit_is_the_head_on_the_first_layers() -> None:
    target, ids = exact("tiny").target, torch.tensor([[1, 2, 3, 4]])
    states = target(ids, output_hidden_states=True).hidden_states[1]
    expected = target.lm_head(target.model.norm(states))
    torch.testing.assert_close(first_layers(target, 1)(ids).logits, expected)


@pytest.mark.parametrize("layers", [0, 2, 3])
def test_an_exit_that_is_none(layers: int) -> None:
    with pytest.raises(ValueError, match="this target exits after 1 to 1"):
        first_layers(exact("tiny").target, layers)


# Suffixes


def longest_match(text: tuple[int, ...]) -> int:
    """Length of the longest suffix that occurred before, the slow way."""
    n = len(text)
    found = (
        size
        for size in range(n - 1, 0, -1)
        if any(text[i : i + size] == text[-size:] for i in range(n - size))
    )
    return next(found, 0)


@examples(300)
@given(st.integers(1, 3).flatmap(lambda vocab: token_lists(vocab, 1, 40)))
def test_the_automaton_finds_the_longest_match_and_a_place_of_it(text: tuple[int, ...]) -> None:
    automaton = SuffixAutomaton()
    for n, token in enumerate(text, 1):
        automaton.append(token)
        size = longest_match(text[:n])
        assert automaton.matched == size
        if size:
            assert automaton.after < n
            assert text[automaton.after - size : automaton.after] == text[n - size : n]


def test_the_automaton_is_linear_in_the_text() -> None:
    automaton = SuffixAutomaton()
    for token in [0] * 500 + [0, 1] * 500:
        automaton.append(token)
    assert len(automaton._next) <= 2 * 1500


def test_a_suffix_that_is_too_short_proposes_nothing() -> None:
    rows = [Request(prompt=(1, 2, 3, 1, 2), max_new_tokens=5, draft_tokens=4)]
    batch = Batch(rows, vocab=8, device=torch.device("cpu"))
    for shortest, expected in ((2, [3, 1, 2]), (3, [])):
        drafter = SuffixDrafter(shortest)
        drafter.start(batch, 16)
        proposal = drafter.propose(batch, batch.room())
        assert proposal.tokens[0, : proposal.count[0]].tolist() == expected
    with pytest.raises(ValueError, match="at least 1"):
        SuffixDrafter(0)


# Cascades


def test_a_cascade_asks_the_model_only_where_nothing_is_found() -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=prompt, max_new_tokens=9, draft_tokens=3, sampling=HOT, seed=1)
        for prompt in ((1, 2, 3, 4, 1, 2), (5, 6, 7, 8, 9, 10))
    ]
    drafter = cascade(pair, NgramDrafter(2, 2))
    batch = Batch(rows, pair.vocab_size, torch.device("cpu"))
    drafter.start(batch, 32)
    proposal = drafter.propose(batch, batch.room())
    assert proposal.count.tolist() == [3, 3]
    assert proposal.tokens[0].tolist() == [3, 4, 1]
    assert proposal.q is not None
    point = proposal.q[0].argmax(-1)
    assert torch.equal(point, proposal.tokens[0])
    assert proposal.q[0].max() == 1
    assert 0 < proposal.q[1].max() < 1
    np.testing.assert_allclose(proposal.q.sum(-1), 1, rtol=1e-5)


def test_an_eagle_that_was_left_out_of_rounds_drafts_as_if_it_were_asked_in_all() -> None:
    pair, rounds = exact("tiny"), []
    asked: list[tuple[tuple[int, ...], list[int]]] = []

    class Watched(EagleDrafter):
        def propose(self, batch: Batch, count: Ints) -> Proposal:
            rounds.append(True)
            proposal = super().propose(batch, count)
            text = tuple(batch.tokens[0, : batch.length[0]].tolist())
            asked.append((text, proposal.tokens[0].tolist()))
            return proposal

        def leave_out(self, batch: Batch) -> None:
            rounds.append(False)
            super().leave_out(batch)

    second = Watched(untrained_eagle(pair.target), pair.target, pair.vocab_size)
    drafter = CascadeDrafter(SuffixDrafter(1), second, pair.vocab_size)
    request = Request(prompt=(1, 2, 3, 1, 2), max_new_tokens=60, draft_tokens=3)
    SpeculativeEngine(pair.target, drafter, pair.vocab_size).generate([request])
    assert "FTFT" in "".join("FT"[was] for was in rounds)  # left out and asked in turns
    for text, tokens in asked:
        batch = Batch([request], pair.vocab_size, torch.device("cpu"))
        batch.tokens[0, : len(text)], batch.length[0] = text, len(text)
        with torch.inference_mode():
            output = pair.target(torch.tensor([text[:-1]]), output_hidden_states=True)
            alone = eagle(pair)
            alone.start(batch, 80)
            alone.see(output.hidden_states[-1], np.zeros(1, dtype=np.int64))
            again = alone.propose(batch, np.array([len(tokens)]))
        assert again.tokens[0].tolist() == tokens


# Medusa and EAGLE


def test_medusa_heads_read_the_state_before_the_last_token() -> None:
    pair, prompt = exact("tiny"), (1, 2, 3, 4, 5)
    drafter = medusa(pair)
    request = Request(prompt=prompt, max_new_tokens=9, draft_tokens=3)
    batch = Batch([request], pair.vocab_size, torch.device("cpu"))
    engine = SpeculativeEngine(pair.target, drafter, pair.vocab_size)
    with torch.inference_mode():
        target = engine.cache(32)
        target.depths = drafter.depths
        engine.prefill(batch, target)
        drafter.start(batch, 32)
        engine.show(target, batch.length * 0)
        proposal = drafter.propose(batch, batch.room())
        states = pair.target(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1]
        expected = [int(head(states[0, -2]).argmax()) for head in drafter.heads]
    assert proposal.tokens[0].tolist() == expected


def test_an_eagle_goes_on_in_states_whatever_was_accepted() -> None:
    """Round after round its guesses are those of the layer on the whole text at once."""
    pair = exact("tiny")
    drafter = eagle(pair)
    seen: list[tuple[tuple[int, ...], list[int]]] = []

    class Watched(SpeculativeEngine):
        def propose(self, batch: Batch, count: Ints) -> Proposal:
            proposal = super().propose(batch, count)
            text = tuple(batch.tokens[0, : batch.length[0]].tolist())
            seen.append((text, proposal.tokens[0, : proposal.count[0]].tolist()))
            return proposal

    request = Request(prompt=(1, 2, 3), max_new_tokens=20, draft_tokens=3)
    Watched(pair.target, drafter, pair.vocab_size).generate([request])
    assert len(seen) > 5
    for text, drafts in seen:
        with torch.inference_mode():
            ids = torch.tensor([text])
            states = pair.target(ids, output_hidden_states=True).hidden_states[-1][:, :-1]
            tokens = ids[:, 1:]
            for draft in drafts:
                inputs = drafter.layer.inputs(drafter.embed(tokens), states)
                guess = drafter.layer.llama(inputs_embeds=inputs).last_hidden_state[:, -1:]
                assert int(drafter.head(guess)[0, 0, : pair.vocab_size].argmax()) == draft
                states = torch.cat([states, guess], 1)
                tokens = torch.cat([tokens, torch.tensor([[draft]])], 1)


def test_checkpoints_come_back(tmp_path: Path) -> None:
    pair = exact("tiny")
    width, head = WIDTH, pair.target.get_output_embeddings()
    heads = medusa(pair, 2).heads
    heads.save(tmp_path)
    again = load_medusa(tmp_path, head, width)
    x = torch.randn(3, width)
    torch.testing.assert_close(
        again[1][0](x), heads[1][0].to(torch.float32)(x), rtol=0.02, atol=0.02
    )
    layer = eagle(pair).layer
    layer.save(tmp_path)
    for name, weight in load_eagle(tmp_path).weights().items():
        torch.testing.assert_close(weight, layer.weights()[name].float(), rtol=0.01, atol=0.01)


def test_medusa_checkpoints_with_heads_of_their_own(tmp_path: Path) -> None:
    """The layout of FasterDecoding: two heads of one block, each with its own linear layer."""
    width, vocab = 8, 11
    weights = {}
    for k in range(2):
        weights[f"{k}.0.linear.weight"] = torch.randn(width, width)
        weights[f"{k}.0.linear.bias"] = torch.randn(width)
        weights[f"{k}.1.weight"] = torch.randn(vocab, width)
    save_file(weights, tmp_path / "medusa_lm_head.safetensors")
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2, "medusa_num_layers": 1}')
    heads = load_medusa(tmp_path, torch.nn.Identity(), width)
    x = torch.randn(width)
    block = x + torch.nn.functional.silu(
        weights["1.0.linear.weight"] @ x + weights["1.0.linear.bias"]
    )
    torch.testing.assert_close(heads[1](x), weights["1.1.weight"] @ block)


def test_an_eagle_checkpoint_in_the_public_layout(tmp_path: Path) -> None:
    """The layout of SafeAILab: with the target's embedding, and without a bias of ``fc``."""
    pair = exact("tiny")
    layer = eagle(pair).layer
    weights = {n: w.detach().float() for n, w in layer.weights().items() if n != "fc.bias"}
    weights["embed_tokens.weight"] = torch.zeros(4, 4)
    save_file(weights, tmp_path / "model.safetensors")
    layer.config.save_pretrained(tmp_path)
    loaded = load_eagle(tmp_path)
    assert not loaded.fc.bias.any()
    torch.testing.assert_close(loaded.fc.weight, weights["fc.weight"])


def test_checkpoints_that_are_something_else(tmp_path: Path) -> None:
    pair = exact("tiny")
    width, head = WIDTH, pair.target.get_output_embeddings()
    medusa(pair, 2).heads.save(tmp_path)
    with pytest.raises(ValueError, match=r"0.0.linear.weight is \[32, 32\], .*must be \[16, 16\]"):
        load_medusa(tmp_path, head, width // 2)
    save_file({"a": torch.zeros(1)}, tmp_path / "medusa_lm_head.safetensors")
    with pytest.raises(ValueError, match=r"no checkpoint of Medusa heads: 0\.0\.linear\.bias"):
        load_medusa(tmp_path, head, width)
    eagle(pair).layer.save(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"this is no checkpoint of an EAGLE layer: a, fc\.weight"):
        load_eagle(tmp_path)


def test_checkpoints_that_are_pickles_or_nothing(tmp_path: Path) -> None:
    for load in (load_eagle, lambda folder: load_medusa(folder, torch.nn.Identity(), WIDTH)):
        with pytest.raises(ValueError, match="holds no checkpoint") as caught:
            load(tmp_path / "nothing")
        assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=r"its weights in medusa_lm_head\.pt, a pickle"):
        load_medusa(tmp_path, torch.nn.Identity(), WIDTH)
    save_file({"a": torch.zeros(1)}, tmp_path / "medusa_lm_head.safetensors")
    with pytest.raises(ValueError, match="does not say medusa_num_heads"):
        load_medusa(tmp_path, torch.nn.Identity(), WIDTH)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match="holds no checkpoint"):
        load_eagle(tmp_path)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.1])
def test_adaptive_drafting_stops_before_it_draws(threshold: float) -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=(i, i + 1), max_new_tokens=9, draft_tokens=4, sampling=HOT, seed=i)
        for i in range(8)
    ]
    batch = Batch(rows, pair.vocab_size, torch.device("cpu"))
    drafter = ModelDrafter(pair.draft, pair.vocab_size, threshold)
    drafter.start(batch, 32)
    proposal = drafter.propose(batch, batch.room())
    for row, request in enumerate(rows):
        text = [*request.prompt, *proposal.tokens[row, : proposal.count[row]].tolist()]
        logits = pair.draft(torch.tensor([text])).logits[0]
        sure = logits.softmax(-1).amax(-1)[len(request.prompt) - 1 :] >= threshold
        assert sure[: proposal.count[row]].all()
        assert proposal.count[row] == 4 or not sure[-1]
    assert (proposal.count < 4).any() == (threshold > 0)


@pytest.mark.parametrize("drafter", ["eagle", "medusa", "cascade to an eagle"])
def test_states_of_another_dtype_than_the_weights(drafter: str) -> None:
    """Mamba keeps its residual stream in float32, whatever its weights are in."""
    pair = load_pair("tiny-mamba", dtype="bfloat16")
    engine = SpeculativeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    [answer] = engine.generate([Request(prompt=(1, 2, 3, 1), max_new_tokens=9, draft_tokens=3)])
    assert len(answer.tokens) == 9
    assert sum(entry.drafted for entry in answer.rounds or ()) > 0
