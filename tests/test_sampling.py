"""``reference_impl.sampling`` against transformers' own processors, and penalties by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import GREEDY, HOT, examples, logits, requests, samplings, token_lists
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel

from harness.contract import Grammar, Request, Sampling
from harness.models import load_pair
from reference_impl.sampling import History, Parameters, next_token_law, normalise, process


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return load_pair("tiny").target


def generation_options(request: Request) -> dict[str, object]:
    """The request in transformers' words; presence and frequency penalty have none."""
    s = request.sampling
    return {
        "do_sample": True,
        "temperature": s.temperature,
        "top_k": s.top_k,
        "top_p": s.top_p,
        "min_p": s.min_p or None,
        "repetition_penalty": s.repetition_penalty,
        "min_new_tokens": s.min_new_tokens or None,
        "sequence_bias": [[[t], b] for t, b in s.logit_bias.items()] or None,
        "eos_token_id": list(request.eos) or None,
    }


def processors(model: PreTrainedModel, request: Request) -> LogitsProcessorList:
    """What ``generate`` itself would apply, in its own order."""
    config = GenerationConfig(**generation_options(request))
    config._eos_token_tensor = torch.tensor(request.eos) if request.eos else None
    return model._get_logits_processor(config, input_ids_seq_length=len(request.prompt))


@st.composite
def situations(
    draw: st.DrawFn, temperatures: st.SearchStrategy, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Request, tuple[int, ...]]:
    """Logits, a request, and the output so far."""
    vocab = draw(st.integers(2, 40))
    eos = draw(token_lists(vocab, 0, min(2, vocab - 1)))
    request = Request(
        prompt=draw(token_lists(vocab, 1, 6)),
        max_new_tokens=9,
        sampling=draw(samplings(vocab, temperatures, eos)),
        eos=eos,
    )
    return draw(logits(vocab, dtype)), request, draw(token_lists(vocab, 0, 8))


def as_far_as_transformers_goes(request: Request) -> Request:
    """Without OpenAI's penalties and without a grammar."""
    neutral = replace(request.sampling, presence_penalty=0.0, frequency_penalty=0.0, grammar=None)
    return replace(request, sampling=neutral)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_is_that_of_transformers(model: PreTrainedModel, dtype: torch.dtype) -> None:
    @examples(200)
    @given(situations(HOT, dtype))
    def check(situation: tuple[Tensor, Request, tuple[int, ...]]) -> None:
        scores, drawn, output = situation
        request = as_far_as_transformers_goes(drawn)
        ids = torch.tensor([[*request.prompt, *output]])
        expected = processors(model, request)(ids, scores.unsqueeze(0).clone())
        if torch.isneginf(expected).all():
            return  # min_new_tokens forbids the only possible token: no law
        assert torch.equal(next_token_law(scores, request, output), expected.softmax(-1)[0])

    check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filters_cut_ties_where_transformers_does(
    model: PreTrainedModel, dtype: torch.dtype
) -> None:
    """Uniform laws: the border of top_p falls exactly on a token in every other case."""
    for vocab in (4, 5, 10, 20, 40):
        for n in range(1, 20):
            s = Sampling(temperature=1.0, top_p=n / 20)
            request = Request(prompt=(0,), max_new_tokens=1, sampling=s)
            scores = torch.zeros(vocab, dtype=dtype)
            expected = processors(model, request)(torch.tensor([[0]]), scores.unsqueeze(0))
            assert torch.equal(next_token_law(scores, request, ()), expected.softmax(-1)[0])


def test_generate_applies_the_same_processors_in_the_same_order(model: PreTrainedModel) -> None:
    """End to end: the scores that the installed ``generate`` samples from."""
    request = Request(
        prompt=(3, 14, 15, 9),
        max_new_tokens=12,
        eos=(7, 40),
        sampling=Sampling(
            temperature=0.7,
            top_k=9,
            top_p=0.85,
            min_p=0.08,
            repetition_penalty=1.4,
            min_new_tokens=5,
            logit_bias={5: 1.5, 7: 2.0},
        ),
    )
    prompt = torch.tensor([request.prompt])
    torch.manual_seed(0)
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=request.max_new_tokens,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        **generation_options(request),
    )
    output = made.sequences[0, len(request.prompt) :].tolist()
    assert len(output) > 5
    for step, (raw, scores) in enumerate(zip(made.logits, made.scores, strict=True)):
        law = next_token_law(raw[0], request, output[:step])
        assert torch.equal(law, scores.softmax(-1)[0])
        assert law[7] == 0 or step >= 5
        assert 1 < (law > 0).sum() <= 9


def forbidden(grammar: Grammar | None, output: tuple[int, ...], token: int) -> bool:
    """By the definition; what follows an output that the grammar does not describe is free."""
    state = None if grammar is None else grammar.walk(output)
    if grammar is None or state is None or not grammar.states[state]:
        return False
    return grammar.walk([token], state) is None


@examples(200)
@given(situations(HOT | GREEDY))
def test_penalties_follow_the_formula(situation: tuple[Tensor, Request, tuple[int, ...]]) -> None:
    """One token at a time: CTRL's repetition penalty, then OpenAI's presence and frequency.

    ``mu[j] -= c[j] * frequency + (c[j] > 0) * presence``, c counts the output alone.
    """
    scores, request, output = situation
    s = request.sampling
    vocab = len(scores)
    expected = []
    for token, score in enumerate(scores.tolist()):
        score += s.logit_bias.get(token, 0.0)
        if token in request.prompt + output:
            score *= s.repetition_penalty if score < 0 else 1 / s.repetition_penalty
        score -= output.count(token) * s.frequency_penalty
        score -= s.presence_penalty if token in output else 0.0
        if token in request.eos and len(output) < s.min_new_tokens:
            score = -torch.inf
        if forbidden(s.grammar, output, token):
            score = -torch.inf
        expected.append(score)
    parameters = Parameters.of([request], vocab)
    history = History.of([request], [output], vocab)
    processed = process(scores.unsqueeze(0), parameters, history, torch.tensor([len(output)]))
    torch.testing.assert_close(processed[0], torch.tensor(expected), atol=1e-4, rtol=1e-5)


@examples(80)
@given(st.data(), st.integers(2, 40))
def test_rows_of_a_batch_are_what_they_are_alone(data: st.DataObject, vocab: int) -> None:
    rows = data.draw(st.lists(requests(vocab, HOT | GREEDY), min_size=2, max_size=4))
    outputs = [data.draw(token_lists(vocab, 0, 6)) for _ in rows]
    scores = torch.stack([data.draw(logits(vocab)) for _ in rows])
    history = History.of(rows, outputs, vocab)
    lengths = torch.tensor([len(output) for output in outputs])
    parameters = Parameters.of(rows, vocab)
    together = normalise(process(scores, parameters, history, lengths), parameters)
    for row, request in enumerate(rows):
        alone = next_token_law(scores[row], request, outputs[row])
        assert torch.equal(together[row], alone) or alone.isnan().any()

    order = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1)))
    chosen = parameters.rows(order)
    processed = process(scores[order], chosen, history.rows(order), lengths[order])
    torch.testing.assert_close(
        normalise(processed, chosen), together[order], atol=0, rtol=0, equal_nan=True
    )


@examples(100)
@given(st.data(), st.integers(2, 12), st.integers(1, 3), st.integers(1, 5))
def test_histories_are_those_counted_anew(
    data: st.DataObject, vocab: int, rows: int, width: int
) -> None:
    asked = [data.draw(requests(vocab, GREEDY)) for _ in range(rows)]
    outputs = [data.draw(token_lists(vocab, 0, 5)) for _ in range(rows)]
    drafts = [data.draw(token_lists(vocab, width, width)) for _ in range(rows)]
    history = History.of(asked, outputs, vocab)

    after = history.after(torch.tensor(drafts))
    grown = [
        (request, output + drafts_[:n])
        for request, output, drafts_ in zip(asked, outputs, drafts, strict=True)
        for n in range(width + 1)
    ]
    same(after, History.of(*map(list, zip(*grown, strict=True)), vocab))

    kept = [data.draw(st.integers(0, width)) for _ in range(rows)]
    valid = torch.arange(width) < torch.tensor(kept).unsqueeze(1)
    extended = history.extended(torch.tensor(drafts), valid)
    longer = [o + d[:n] for o, d, n in zip(outputs, drafts, kept, strict=True)]
    same(extended, History.of(asked, longer, vocab))


def same(one: History, other: History) -> None:
    assert torch.equal(one.counts, other.counts)
    assert torch.equal(one.seen, other.seen)
    logits = torch.zeros_like(one.counts)
    if one.automata is None or other.automata is None:
        assert one.automata is other.automata
    else:
        assert torch.equal(one.automata.forbid(logits), other.automata.forbid(logits))
        assert torch.equal(one.automata.state, other.automata.state)


def test_greedy_law_ignores_the_filters_and_takes_the_first_of_equals() -> None:
    scores = torch.tensor([1.0, 3.0, 3.0, 2.0])
    request = Request(prompt=(0,), max_new_tokens=1, sampling=Sampling(top_k=1, top_p=0.1))
    assert next_token_law(scores, request, ()).tolist() == [0, 1, 0, 0]


def test_half_precision_logits_give_a_float32_law() -> None:
    request = Request(prompt=(0,), max_new_tokens=1, sampling=Sampling(temperature=1.0))
    law = next_token_law(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), request, ())
    assert law.dtype is torch.float32
    torch.testing.assert_close(law, torch.tensor([1.0, 2.0]).softmax(-1))
