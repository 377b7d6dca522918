"""Trees of drafts: what the target sees of them, and that greedy ids are plain decoding's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from decoding import HOT, ONE_TOKEN, assert_alone_as_together, assert_plain, exact

from harness.contract import Request, Sampling
from harness.models import ModelPair
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.drafters.branching import BranchingDrafter
from reference_impl.drafters.eagle_tree import EagleTree
from reference_impl.drafters.medusa import MedusaTree, paths
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.drafters.untrained import untrained_eagle, untrained_medusa
from reference_impl.layout import Layout
from reference_impl.proposal import Drafter
from reference_impl.tree import Tree, TreeEngine

Make = Callable[[ModelPair], Drafter]
DRAFTERS: dict[str, Make] = {
    "three by two": lambda pair: BranchingDrafter(pair.draft, pair.vocab_size),
    "one": lambda pair: BranchingDrafter(pair.draft, pair.vocab_size, (1,)),
    "medusa": lambda pair: MedusaTree(untrained_medusa(pair.target), pair.vocab_size),
    "eagle": lambda pair: EagleTree(untrained_eagle(pair.target), pair.target, pair.vocab_size),
    "replaced": lambda pair: BranchingDrafter(pair.draft, pair.vocab_size, (2, 2, 2), True),
}
PAIRS = ["tiny", "tiny-bad", "tiny-gpt2", "tiny-window", "tiny-self"]


def tree_of(parents: list[list[int]], tokens: list[list[int]]) -> Tree:
    ids = torch.tensor(tokens)
    used = np.full(len(ids), ids.shape[1])
    return Tree(ids, torch.tensor(parents), ids >= 0, used, np.full(len(ids), 3), 2)


def test_ancestors_depths_and_children() -> None:
    tree = tree_of([[0, 0, 1, 1, 3], [0, 1, 2, 0, 4]], [[1, 2, 3, 4, 5]] * 2)
    assert tree.depth.tolist() == [[0, 1, 1, 2, 2, 3], [0, 1, 2, 3, 1, 2]]
    assert tree.ancestors[0, 5].tolist() == [True, True, False, True, False, True]
    assert tree.children[0].tolist() == [[1, 2], [3, 4], [0, 0], [5, 0], [0, 0], [0, 0]]
    assert tree.children[1, 0].tolist() == [1, 4]
    tree = replace(tree, valid=tree.tokens < 4)
    assert tree.children[0, 1].tolist() == [3, 0]


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2", "tiny-window"])
def test_a_node_sees_the_text_and_what_is_above_it(name: str) -> None:
    """Its logits are those of the path to it, fed as a chain; also after a path was made one."""
    pair = exact(name)
    texts = [(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (11, 12, 13)]
    tree = tree_of([[0, 0, 1, 2, 3], [0, 1, 1, 3, 3]], [[20, 21, 22, 23, 24], [30, 31, 32, 33, 34]])
    paths = [[0, 1, 3, 5], [0, 1, 3, 4]]
    with torch.inference_mode():
        cached = CachedModel(pair.target, 32, pair.vocab_size)
        longest = max(map(len, texts)) - 1
        cached.prefill(torch.tensor([[*t, *[0] * longest][:longest] for t in texts]))
        start = np.array([len(t) - 1 for t in texts])
        ids = torch.cat([torch.tensor([[t[-1]] for t in texts]), tree.tokens], 1)
        layout = Layout(start, tree.depth, tree.ancestors, 0, 6)
        logits = cached.tree(ids, layout)
        for row, text in enumerate(texts):
            for node in range(6):
                above = [
                    int(t) for t, a in zip(ids[row], tree.ancestors[row, node], strict=True) if a
                ]
                chain = torch.tensor([[*text[:-1], *above]])
                torch.testing.assert_close(logits[row, node], pair.target(chain).logits[0, -1])
        cached.move(start, torch.tensor(paths))
        after = cached.forward(torch.tensor([[40], [41]]), start + 4)[:, 0]
        for row, (text, path, token) in enumerate(zip(texts, paths, (40, 41), strict=True)):
            chain = torch.tensor([[*text[:-1], *ids[row, path].tolist(), token]])
            torch.testing.assert_close(after[row], pair.target(chain).logits[0, -1])


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_ids_are_those_of_plain_decoding(drafter: str, name: str) -> None:
    pair = exact(name)
    rows = [
        Request(prompt=prompt, max_new_tokens=n, draft_tokens=k)
        for prompt, n, k in (
            ((1, 2, 3), 24, 4),
            ((5, 6, 7, 5, 6, 7, 5, 6), 30, 3),
            ((9,), 12, 1),
            ((2, 3), 1, 2),
        )
    ]
    engine = TreeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_plain(engine, pair, rows)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_draws_the_same_alone_and_in_a_batch(drafter: str) -> None:
    pair = exact("tiny")
    rows = [
        Request(prompt=(i, i + 1, i), max_new_tokens=20 - i, draft_tokens=1 + i, sampling=s, seed=i)
        for i, s in enumerate((HOT, Sampling(), HOT, HOT))
    ]
    engine = TreeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_alone_as_together(engine, rows)


@pytest.mark.parametrize("rows", ONE_TOKEN)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_texts_of_one_token_beside_one_that_does_not_draft(drafter: str, rows: str) -> None:
    pair = exact("tiny")
    engine = TreeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_plain(engine, pair, ONE_TOKEN[rows])


def test_a_tree_of_itself_is_entered_at_every_level() -> None:
    pair = exact("tiny-self")
    engine = TreeEngine(pair.target, DRAFTERS["three by two"](pair), pair.vocab_size)
    for sampling in (Sampling(), HOT):
        request = Request(
            prompt=(1, 2, 3), max_new_tokens=30, draft_tokens=4, sampling=sampling, seed=1
        )
        [answer] = engine.generate([request])
        assert all(entry.accepted == entry.drafted for entry in answer.rounds or ())


def test_more_branches_accept_more() -> None:
    pair = exact("tiny")
    requests = [
        Request(prompt=(i, 3), max_new_tokens=40, draft_tokens=3, sampling=HOT, seed=i)
        for i in range(24)
    ]

    def rounds(widths: tuple[int, ...]) -> int:
        drafter = BranchingDrafter(pair.draft, pair.vocab_size, widths)
        answers = TreeEngine(pair.target, drafter, pair.vocab_size).generate(requests)
        return sum(len(answer.rounds or ()) for answer in answers)

    assert rounds((4, 2)) < rounds((1,))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_tree_of_many_levels_at_the_end_of_the_context(drafter: str) -> None:
    pair = exact("tiny-gpt2")
    rows = [
        Request(prompt=tuple(range(1, 60)) * 2, max_new_tokens=10 - i, draft_tokens=9 + i)
        for i in range(3)
    ]
    engine = TreeEngine(pair.target, DRAFTERS[drafter](pair), pair.vocab_size)
    assert_plain(engine, pair, rows)


def test_what_cannot_be() -> None:
    pair = exact("tiny")
    with pytest.raises(TypeError, match="NgramDrafter proposes no trees"):
        TreeEngine(pair.target, NgramDrafter(), pair.vocab_size)
    mamba = exact("tiny-mamba")
    engine = TreeEngine(mamba.target, DRAFTERS["one"](mamba), mamba.vocab_size)
    with pytest.raises(ValueError, match="trees need a target with keys and values"):
        engine.generate([Request(prompt=(1,), max_new_tokens=4, draft_tokens=2)])


def test_paths_of_a_medusa_tree() -> None:
    assert paths(0, 3) == ()
    assert paths(2, 3) == ((0,), (1,), (2,), (0, 0), (0, 1), (0, 2), (1, 0), (2, 0))
    assert all(path[:-1] in {(), *paths(4, 6)} for path in paths(4, 6))


def test_a_medusa_tree_combines_the_likeliest_tokens_of_its_heads() -> None:
    pair, seen = exact("tiny"), []

    class Watched(MedusaTree):
        def grow(self, batch: Batch, count: Ints) -> Tree:
            seen.append((tuple(batch.tokens[0, : batch.length[0]]), super().grow(batch, count)))
            return seen[-1][1]

    drafter = Watched(untrained_medusa(pair.target, 2), pair.vocab_size, 3)
    request = Request(prompt=(1, 2, 3), max_new_tokens=12, draft_tokens=2)
    TreeEngine(pair.target, drafter, pair.vocab_size).generate([request])
    for text, tree in seen[:3]:
        with torch.inference_mode():
            states = pair.target(torch.tensor([text]), output_hidden_states=True).hidden_states[-1]
            top = [head(states[0, -2]).topk(3).indices.tolist() for head in drafter.heads]
        expected = [top[len(path) - 1][path[-1]] for path in paths(2, 3)]
        assert tree.tokens[0].tolist() == expected
        assert tree.parents[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("vocabulary", [None, torch.arange(0, 64, 2)])
def test_an_eagle_tree_is_what_the_layer_finds_likeliest(vocabulary: torch.Tensor | None) -> None:
    """Against a search the slow way: every prefix is run through the layer as a chain."""
    pair, seen = exact("tiny"), []

    class Watched(EagleTree):
        def grow(self, batch: Batch, count: Ints) -> Tree:
            seen.append((tuple(batch.tokens[0, : batch.length[0]]), super().grow(batch, count)))
            return seen[-1][1]

    layer = untrained_eagle(pair.target)
    layer.vocabulary = vocabulary
    drafter = Watched(layer, pair.target, pair.vocab_size, breadth=3, size=9)
    request = Request(prompt=(1, 2, 3), max_new_tokens=12, draft_tokens=3)
    TreeEngine(pair.target, drafter, pair.vocab_size).generate([request])

    @torch.inference_mode()
    def after(text: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
        ids = torch.tensor([text])
        states = pair.target(ids, output_hidden_states=True).hidden_states[-1][:, :-1]
        tokens = ids[:, 1:]
        for token in (*path, None):
            inputs = layer.inputs(drafter.embed(tokens), states)
            guess = layer.llama(inputs_embeds=inputs).last_hidden_state[:, -1:]
            if token is not None:
                states = torch.cat([states, guess], 1)
                tokens = torch.cat([tokens, torch.tensor([[token]])], 1)
        return drafter.head(guess)[0, 0, : pair.vocab_size].log_softmax(-1)

    for text, tree in seen[:3]:
        ends, found = {(): 0.0}, {}
        for _ in range(3):
            grown = {}
            for path, score in ends.items():
                for value, token in zip(*after(text, path).topk(3), strict=True):
                    grown[*path, int(token)] = score + float(value)
            found |= grown
            ends = dict(sorted(grown.items(), key=lambda item: -item[1])[:3])
        best = set(sorted(found, key=lambda path: -found[path])[:9])
        ways: list[tuple[int, ...]] = [()]
        for parent, token in zip(tree.parents[0].tolist(), tree.tokens[0].tolist(), strict=True):
            ways.append((*ways[parent], token))
        assert set(ways[1:]) == best


@pytest.mark.parametrize("tokens", [1, 2])
def test_an_eagle_tree_of_fewer_tokens_than_it_has_ends(tokens: int) -> None:
    pair = exact("tiny")
    layer = untrained_eagle(pair.target)
    layer.vocabulary = torch.arange(5, 5 + tokens)
    drafter = EagleTree(layer, pair.target, pair.vocab_size)
    assert drafter.breadth == tokens
    rows = [Request(prompt=(1, 2, i), max_new_tokens=9, draft_tokens=4) for i in range(3)]
    assert_plain(TreeEngine(pair.target, drafter, pair.vocab_size), pair, rows)
