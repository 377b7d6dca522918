"""The oracle against the definition of a law, token by token, and against plain decoding."""

from __future__ import annotations

import functools
import itertools
import math

import msgspec
import pytest
import torch
from hypothesis import given
from strategies import GREEDY, HOT, examples, requests, token_lists

from harness import oracle
from harness.checks.prompts import random_prompt
from harness.contract import Completion, Request, Sampling
from harness.models import ModelPair, load_pair
from harness.tiny_pairs import CONTEXT
from reference_impl.autoregressive import decode, model_laws
from reference_impl.randomness import Seeded

load = functools.cache(load_pair)
GREEDY_PAIRS = ["tiny", "tiny-ties", "tiny-window", "tiny-gpt2", "tiny-mamba"]
PENALISED = Sampling(
    temperature=0.8,
    top_k=6,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.2,
    min_new_tokens=4,
    logit_bias={3: 1.5, 5: -math.inf},
)


def plain(pair: ModelPair, request: Request) -> Completion:
    return decode(model_laws(pair.target, request, pair.vocab_size), request, Seeded(request.seed))


# --- laws along an output -----------------------------------------------------------------------


@examples(40)
@given(requests(8, HOT | GREEDY), token_lists(8, 1, 10))
def test_laws_along_an_output_are_those_of_plain_decoding(
    request_: Request, output: tuple[int, ...]
) -> None:
    """Whatever the output: it need not be the decoder's own. One pass against one call a token."""
    pair = load("micro")
    _, laws = oracle.laws_along(pair.target, request_, output, pair.vocab_size)
    one_by_one = model_laws(pair.target, request_, pair.vocab_size)
    expected = torch.stack([one_by_one(output[:i], 1)[0] for i in range(len(output))])
    assert laws.shape == expected.shape
    torch.testing.assert_close(laws, expected, atol=1e-5, rtol=1e-4)


def test_history_counts_token_by_token() -> None:
    """Each row has the penalties and the forbidden tokens of its own prefix."""
    pair = load("micro")
    request = Request(prompt=(1, 2), max_new_tokens=8, sampling=PENALISED, eos=(0,))
    scores, laws = oracle.laws_along(pair.target, request, [4, 4, 0, 7, 4, 2], pair.vocab_size)
    assert (laws[:, 5] == 0).all()  # the bias
    assert (laws[:4, 0] == 0).all()  # no EOS before four tokens, and then it is possible
    assert torch.isfinite(scores[4:, 0]).all()
    bare = msgspec.structs.replace(request, sampling=Sampling(temperature=0.8))
    raw, _ = oracle.laws_along(pair.target, bare, [4, 4, 0, 7, 4, 2], pair.vocab_size)
    # Token 4: in the output not at all, then once, then twice.
    for position, count in ((0, 0), (1, 1), (2, 2), (5, 3)):
        logit = raw[position, 4]
        repeated = (logit * 1.3 if logit < 0 else logit / 1.3) if count else logit
        expected = repeated - 0.4 * (count > 0) - 0.2 * count
        assert float(scores[position, 4]) == pytest.approx(float(expected), abs=1e-5)


def test_a_padded_output_matrix_is_cut() -> None:
    pair = load("tiny")
    request = Request(prompt=(1, 2), max_new_tokens=4, sampling=Sampling(temperature=1.0))
    scores, laws = oracle.laws_along(pair.target, request, [3, 4, 5], 50)
    assert scores.shape == laws.shape == (3, 50)
    assert torch.allclose(laws.sum(-1), torch.ones(3))


# --- the joint law ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0), PENALISED], ids=["plain", "all"])
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_the_joint_law_is_the_product_of_its_parts(sampling: Sampling, tokens: int) -> None:
    pair = load("micro")
    request = Request(prompt=(2, 6, 1), max_new_tokens=tokens, sampling=sampling, eos=(0,))
    joint = oracle.joint(oracle.joint_law(pair.target, request, tokens, pair.vocab_size))
    assert joint.shape == (8**tokens,)
    assert joint.min() >= 0
    assert float(joint.sum()) == pytest.approx(1, abs=1e-6)

    law = model_laws(pair.target, request, pair.vocab_size)
    after = functools.cache(lambda prefix: law(prefix, 1)[0].tolist())
    expected = [
        math.prod(after(output[:i])[token] for i, token in enumerate(output))
        for output in itertools.product(range(8), repeat=tokens)
    ]
    assert joint.tolist() == pytest.approx(expected, abs=1e-6, rel=1e-4)


def test_too_many_outcomes_are_refused() -> None:
    pair = load("tiny")
    request = Request(prompt=(1,), max_new_tokens=4)
    with pytest.raises(ValueError, match=r"64\^4 outcomes are too many"):
        oracle.joint_law(pair.target, request, 4, pair.vocab_size)


# --- greedy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GREEDY_PAIRS)
def test_plain_decoding_has_no_divergence_beyond_noise(name: str) -> None:
    """Not one on these: an exact tie breaks as plain decoding breaks it."""
    pair = load(name)
    for sampling in (Sampling(), Sampling(repetition_penalty=1.4, frequency_penalty=0.3)):
        for length in (1, 7, 40):
            prompt = random_prompt(pair, length, length)
            request = Request(prompt=prompt, max_new_tokens=24, sampling=sampling)
            output = plain(pair, request).tokens
            assert oracle.greedy_divergences(pair, request, output) == []


@pytest.mark.parametrize("name", GREEDY_PAIRS)
@pytest.mark.parametrize("position", [0, 1, 9])
def test_a_replaced_token_is_found_where_it_is(name: str, position: int) -> None:
    pair = load(name)
    request = Request(prompt=random_prompt(pair, 5, 1), max_new_tokens=10)
    output = plain(pair, request).tokens
    expected, got = output[position], (output[position] + 7) % pair.vocab_size
    changed = [*output[:position], got]
    found = oracle.greedy_divergences(pair, request, changed)
    text = torch.tensor([[*request.prompt, *output[:position]]])
    logits = pair.target(input_ids=text).logits[0, -1]
    gap = float(logits[expected] - logits[got])
    assert [(d.position, d.expected, d.got) for d in found] == [(position, expected, got)]
    assert found[0].gap == pytest.approx(gap, abs=1e-4)
    # What follows is judged on the changed text: the first divergence stays where it was.
    longer = oracle.greedy_divergences(pair, request, changed + output[position + 1 :])
    assert longer[0].position == position


def test_the_other_of_two_tied_tokens_is_a_divergence_of_gap_zero() -> None:
    pair = load("tiny-ties")
    request = Request(prompt=random_prompt(pair, 5, 1), max_new_tokens=1)
    best = plain(pair, request).tokens[0]
    assert best % 2 == 0  # of each two the first
    [found] = oracle.greedy_divergences(pair, request, [best + 1])
    assert found.gap == 0


def test_the_path_is_plain_decoding() -> None:
    pair = load("tiny-window")
    request = Request(prompt=random_prompt(pair, 5, 1), max_new_tokens=12)
    assert oracle.greedy_path(pair, request.prompt, 12) == plain(pair, request).tokens


# --- noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GREEDY_PAIRS)
def test_noise_is_small_beside_what_matters(name: str) -> None:
    """Rounding in float32 of logits about 2 in size. Exact ties part in no shape: no noise."""
    pair = load(name)
    found = oracle.noise(pair, random_prompt(pair, 8, 0))
    assert found == 0 if name == "tiny-ties" else 0 < found < 1e-3


@pytest.mark.parametrize("length", [CONTEXT - 3, CONTEXT - 1, CONTEXT])
def test_noise_and_path_end_with_the_context(length: int) -> None:
    pair = load("tiny-gpt2")  # learned positions: beyond the last one there is an IndexError
    prompt = random_prompt(pair, length, 0)
    assert len(oracle.greedy_path(pair, prompt, 24)) == CONTEXT - length
    assert math.isfinite(oracle.noise(pair, prompt))
