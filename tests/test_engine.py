"""The engine against the page and plain decoding: greedy ids, and every request as if alone.

Models are float64 here: the noise between batched, cached and plain forward passes is then far
below any difference that decides a token, so ids must be equal and not only almost always so.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import GREEDY, HOT, examples, requests

from harness.contract import Completion, Request, Round, Sampling
from harness.models import ModelPair, load_pair
from harness.tiny_pairs import make_target
from reference_impl import autoregressive, speculative
from reference_impl.cache import fit_vocabulary
from reference_impl.drafters.model import ModelDrafter
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Drafter
from reference_impl.randomness import Seeded

PAIRS = [
    *("tiny", "tiny-bad", "tiny-self", "tiny-hostile", "tiny-ties", "tiny-padded"),
    *("tiny-gpt2", "tiny-window", "tiny-mamba-bad"),
]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    ),
]

load = functools.cache(load_pair)


def exact(name: str, device: str = "cpu") -> ModelPair:
    return load(name, device=device, dtype="float64")


def engine(pair: ModelPair, drafter: Drafter | None = None, **options: int) -> SpeculativeEngine:
    drafter = drafter or ModelDrafter(pair.draft, pair.vocab_size)
    return SpeculativeEngine(pair.target, drafter, pair.vocab_size, **options)


def plain(pair: ModelPair, request: Request) -> Completion:
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    return autoregressive.decode(laws, request, Seeded(request.seed))


def page(pair: ModelPair, request: Request) -> Completion:
    p = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    q = autoregressive.model_laws(pair.draft, request, pair.vocab_size)
    return speculative.decode(p, speculative.draft_with(q), request, Seeded(request.seed))


def results(completions: Sequence[Completion]) -> list[tuple[list[int], str]]:
    return [(c.tokens, c.finish_reason) for c in completions]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_greedy_is_plain_decoding_in_the_rounds_of_the_page(name: str, device: str) -> None:
    pair = exact(name, device)

    @examples(8)
    @given(st.lists(requests(pair.vocab_size, GREEDY, longest=16), min_size=1, max_size=4))
    def check(batch: list[Request]) -> None:
        expected = [plain(pair, request) for request in batch]
        completions = engine(pair).generate(batch)
        assert results(completions) == results(expected)
        assert results(engine(pair, NgramDrafter()).generate(batch)) == results(expected)
        for request, completion in zip(batch, completions, strict=True):
            if request.speculate:
                assert completion.rounds == page(pair, request).rounds
            else:
                assert completion.rounds == [Round(0, 0)] * len(completion.tokens)

    check()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("name", ["tiny", "tiny-bad", "tiny-gpt2", "tiny-window", "tiny-mamba"])
def test_a_request_does_not_notice_its_batch(name: str, drafter: str, device: str) -> None:
    """Sampled and greedy, speculating or not, any K: the same seed gives the same ids."""
    pair = exact(name, device)
    drafts = NgramDrafter() if drafter == "ngram" else ModelDrafter(pair.draft, pair.vocab_size)

    @examples(6)
    @given(st.lists(requests(pair.vocab_size, HOT | GREEDY, 16), min_size=2, max_size=5))
    def check(batch: list[Request]) -> None:
        together = engine(pair, drafts).generate(batch)
        assert results(engine(pair, drafts, max_batch=2).generate(batch)) == results(together)
        for request, completion in zip(batch, together, strict=True):
            alone = engine(pair, drafts).generate([request])[0]
            assert results([alone]) == results([completion])
            assert alone.rounds == completion.rounds

    check()


def test_a_temperature_of_almost_zero_is_greedy() -> None:
    """In float32, tenths divided by a millionth stay finite."""
    pair = exact("tiny-bad")
    greedy = Request(prompt=(1, 2), max_new_tokens=30)
    almost = Request(
        prompt=(1, 2), max_new_tokens=30, sampling=Sampling(temperature=1e-6, top_p=0.5), seed=1
    )
    first, second = engine(pair).generate([greedy, almost])
    assert results([first]) == results([second])
    assert first.rounds == second.rounds


def test_no_request_is_no_completion() -> None:
    assert engine(exact("tiny")).generate([]) == []


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2"])
def test_the_context_may_be_filled_to_its_last_position(name: str) -> None:
    pair = exact(name)
    size = pair.context_length
    batch = [
        Request(prompt=tuple(i % 64 for i in range(n)), max_new_tokens=size - n, draft_tokens=k)
        for n, k in [(size - 1, 8), (size - 9, 8), (size - 20, 3), (5, 8)]
    ]
    completions = engine(pair).generate(batch)
    assert [len(c.tokens) for c in completions] == [r.max_new_tokens for r in batch]
    assert results(completions[:3]) == results([plain(pair, r) for r in batch[:3]])
    assert results(completions) == results([engine(pair).generate([r])[0] for r in batch])


def test_more_draft_tokens_than_could_ever_be_used_cost_nothing() -> None:
    request = Request(prompt=(1, 2), max_new_tokens=6, draft_tokens=10**9)
    assert (
        engine(exact("tiny")).generate([request])[0].tokens == plain(exact("tiny"), request).tokens
    )


@pytest.mark.parametrize(("target", "draft"), [(72, 64), (64, 72), (72, 80)])
def test_padding_of_the_vocabulary_is_never_emitted(target: int, draft: int) -> None:
    models = [make_target("llama", size, 1).double() for size in (target, draft)]
    pair = ModelPair("padded", *models, vocab_size=64, context_length=128)
    prompt = (1, 2, 3)
    torch.manual_seed(0)
    wide = models[0].generate(torch.tensor([prompt]), max_new_tokens=60, do_sample=True, top_k=0)
    assert target == 64 or wide.max() >= 64  # without care it would be
    hot = Sampling(temperature=1.5)
    batch = [Request(prompt=prompt, max_new_tokens=60)]
    batch += [Request(prompt=prompt, max_new_tokens=60, sampling=hot, seed=n) for n in range(8)]
    completions = engine(pair).generate(batch)
    assert max(max(c.tokens) for c in completions) < 64
    assert results(completions[:1]) == results([plain(pair, batch[0])])


def test_missing_columns_are_impossible_tokens() -> None:
    narrow = torch.tensor([[1.0, 2.0]])
    assert fit_vocabulary(narrow, 3).tolist() == [[1.0, 2.0, -torch.inf]]
    assert fit_vocabulary(narrow, 1).tolist() == [[1.0]]


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_runs(device: str) -> None:
    pair = load("tiny", device=device, dtype="bfloat16")
    hot = Sampling(temperature=1.0, top_p=0.9)
    batch = [Request(prompt=(n, 2), max_new_tokens=20, sampling=hot, seed=n) for n in range(3)]
    batch += [Request(prompt=(7, 8, 9), max_new_tokens=20)]
    for completion in engine(pair).generate(batch):
        assert len(completion.tokens) == 20 == sum(r.accepted + 1 for r in completion.rounds)
        assert all(0 <= token < 64 for token in completion.tokens)


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2", "tiny-window", "tiny-mamba"])
def test_eager_attention_is_sdpa(name: str) -> None:
    pair = exact(name)
    eager = copy.deepcopy(pair)
    for model in (eager.target, eager.draft):
        model.set_attn_implementation("eager")
    batch = [
        Request(prompt=tuple(range(n, 2 * n)), max_new_tokens=25, draft_tokens=n, speculate=n != 3)
        for n in (1, 3, 4, 7)
    ]
    assert eager.target.config._attn_implementation == "eager"
    assert results(engine(eager).generate(batch)) == results(engine(pair).generate(batch))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_target_is_always_accepted(temperature: float) -> None:
    pair = exact("tiny-self")
    lengths = range(1, 31)
    batch = [
        Request(
            prompt=(1, 2, 3),
            max_new_tokens=n,
            draft_tokens=1 + n % 5,
            sampling=Sampling(temperature=temperature),
            seed=n,
        )
        for n in lengths
    ]
    for request, completion in zip(batch, engine(pair).generate(batch), strict=True):
        k, n = request.draft_tokens, request.max_new_tokens
        whole, rest = divmod(n, k + 1)
        expected = [Round(k, k)] * whole + ([Round(rest - 1, rest - 1)] if rest else [])
        assert completion.rounds == expected


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("prompt", [(5,), (1, 2, 1, 2, 1, 2, 1)])
def test_every_token_is_fed_once_and_the_prompt_never_again(
    prompt: tuple[int, ...], drafter: str
) -> None:
    pair = exact("tiny-bad")
    fed: list[int] = []
    hook = pair.target.register_forward_pre_hook(
        lambda _, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    request = Request(prompt=prompt, max_new_tokens=20, draft_tokens=3)
    try:
        chosen = NgramDrafter() if drafter == "ngram" else None
        completion = engine(pair, chosen).generate([request])[0]
    finally:
        hook.remove()
    assert len(completion.rounds) + (len(prompt) > 1) == len(fed)
    assert sum(fed) == len(prompt) - 1 + sum(r.drafted + 1 for r in completion.rounds)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logprobs_are_those_of_the_sampling_law(temperature: float) -> None:
    """Greedy rows tell the law that the argmax was taken of, at temperature 1."""
    pair = exact("tiny")
    s = {"repetition_penalty": 1.3, "min_new_tokens": 5, "logit_bias": {3: 2.0}}
    request = Request(
        prompt=(1, 2, 3),
        max_new_tokens=20,
        eos=(9, 10, 11, 12),
        sampling=Sampling(temperature=temperature, **s),
        seed=11,
        logprobs=True,
    )
    other = Request(prompt=(4,), max_new_tokens=9, sampling=Sampling(temperature=1.0, top_k=5))
    completion, silent = engine(pair).generate([request, other])
    assert silent.logprobs is None
    assert completion.logprobs is not None
    assert len(completion.logprobs) == len(completion.tokens)
    told = Request(
        prompt=request.prompt,
        max_new_tokens=20,
        eos=request.eos,
        sampling=Sampling(temperature=temperature or 1.0, **s),
    )
    laws = autoregressive.model_laws(pair.target, told, pair.vocab_size)
    tokens = completion.tokens
    expected = [float(laws(tokens[:n], 1)[0, token].log()) for n, token in enumerate(tokens)]
    assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_without_a_seed_no_two_calls_are_the_same() -> None:
    request = Request(prompt=(1,), max_new_tokens=40, sampling=Sampling(temperature=2.0))
    decoder = engine(exact("tiny"))
    first, second = decoder.generate([request, request])
    third = decoder.generate([request])[0]
    assert first.tokens != second.tokens != third.tokens != first.tokens
