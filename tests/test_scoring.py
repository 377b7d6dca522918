"""Scoring in batches: each law is that of its output scored alone, whatever it is scored with."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import GREEDY, HOT, examples, requests, token_lists
from torch import Tensor

from harness import oracle, scoring
from harness.checks.prompts import random_prompt
from harness.contract import Request, Sampling
from harness.models import ModelPair, load_pair
from harness.scoring import Answer, score
from harness.stats.rows import Rows
from reference_impl import sampling
from reference_impl.autoregressive import model_laws

load = functools.cache(load_pair)
PAIRS = ["tiny", "tiny-gpt2", "tiny-window"]
SETTINGS = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=5),
    Sampling(),
    Sampling(temperature=1.3, top_p=0.8, min_p=0.02),
    Sampling(temperature=0.9, repetition_penalty=1.4, presence_penalty=0.3),
    Sampling(temperature=1.0, frequency_penalty=-0.2, min_new_tokens=6),
    Sampling(temperature=0.8, top_k=9, top_p=0.9, logit_bias={3: 2.0, 7: -math.inf}),
    Sampling(repetition_penalty=1.2, min_new_tokens=2),
)


def mixed(pair: ModelPair, seed: int = 0) -> list[Answer]:
    """Answers of all settings, with prompts and outputs of many lengths."""
    generator = torch.Generator().manual_seed(seed)
    answers = []
    for i, settings in enumerate(2 * SETTINGS):
        length = 1 + (7 * i) % 23
        tokens = torch.randint(pair.vocab_size, (1 + (5 * i) % 17,), generator=generator)
        request = Request(
            prompt=random_prompt(pair, length, seed + i),
            max_new_tokens=32,
            sampling=settings,
            eos=(0, 5) if i % 3 else (),
        )
        answers.append(Answer(request, tokens.tolist()))
    return answers


def by_answer(found: Sequence[Rows], name: str) -> dict[int, Tensor]:
    """One attribute of all rows, put together again: [n, ...] of each answer."""
    parts: dict[int, list[Tensor]] = defaultdict(list)
    for rows in found:
        assert rows.answer is not None
        for i, value in zip(rows.answer.tolist(), getattr(rows, name), strict=True):
            parts[i].append(value)
    return {i: torch.stack(values) for i, values in parts.items()}


def equal_those_alone(pair: ModelPair, answers: Sequence[Answer], found: Sequence[Rows]) -> None:
    """Laws of target and draft, scores and tokens, against one output a pass."""
    p, q, scores = (by_answer(found, name) for name in ("p", "q", "scores"))
    tokens = by_answer(found, "tokens")
    assert p.keys() == set(range(len(answers)))
    for i, answer in enumerate(answers):
        assert tokens[i].tolist() == list(answer.tokens)
        for model, law in ((pair.target, p[i]), (pair.draft, q[i])):
            along = oracle.laws_along(model, answer.request, answer.tokens, pair.vocab_size)
            torch.testing.assert_close(law, along[1].double(), atol=1e-5, rtol=1e-4)
            if model is pair.target:
                torch.testing.assert_close(scores[i], along[0], atol=1e-4, rtol=1e-4)


# --- one by one -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_a_batch_of_mixed_requests(name: str) -> None:
    pair = load(name)
    answers = mixed(pair)
    found = list(score(pair, answers))
    equal_those_alone(pair, answers, found)
    for rows in found:
        assert rows.p.dtype is torch.float64
        assert rows.p.sum(-1).tolist() == pytest.approx([1] * len(rows), abs=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_each_law_is_that_of_plain_decoding(name: str) -> None:
    """By definition: one call of the model a token, and the history counted anew."""
    pair = load(name)
    answers = mixed(pair, 3)[: len(SETTINGS)]
    found = list(score(pair, answers))
    for model, laws in ((pair.target, by_answer(found, "p")), (pair.draft, by_answer(found, "q"))):
        for i, answer in enumerate(answers):
            one_by_one = model_laws(model, answer.request, pair.vocab_size)
            expected = [one_by_one(answer.tokens[:t], 1)[0] for t in range(len(answer.tokens))]
            torch.testing.assert_close(
                laws[i], torch.stack(expected).double(), atol=1e-5, rtol=1e-4
            )


@examples(30)
@given(
    st.lists(st.tuples(requests(8, HOT | GREEDY), token_lists(8, 1, 10)), min_size=1, max_size=5)
)
def test_any_batch(drawn: list[tuple[Request, tuple[int, ...]]]) -> None:
    pair = load("micro")
    answers = [Answer(request, tokens) for request, tokens in drawn]
    equal_those_alone(pair, answers, list(score(pair, answers)))


def test_parameters_are_those_of_the_request() -> None:
    """Scores and parameters together give the law."""
    pair = load("tiny")
    answers = mixed(pair)
    for rows in score(pair, answers):
        assert rows.parameters is not None
        assert rows.scores is not None
        assert rows.answer is not None
        law = sampling.normalise(rows.scores, rows.parameters).double()
        torch.testing.assert_close(rows.p, law, atol=1e-6, rtol=1e-5)
        asked = [answers[i].request.sampling for i in rows.answer.tolist()]
        assert rows.parameters.temperature.flatten().tolist() == [s.temperature for s in asked]
        assert rows.parameters.top_p.flatten().tolist() == [s.top_p for s in asked]


def test_without_the_draft() -> None:
    pair = load("tiny")
    with_draft, without = (list(score(pair, mixed(pair), draft=draft)) for draft in (True, False))
    for one, other in zip(with_draft, without, strict=True):
        assert other.q is None
        assert one.q is not None
        assert one.p.tolist() == other.p.tolist()


def test_no_answers_have_no_rows() -> None:
    assert list(score(load("tiny"), [])) == []


def test_shorter_texts_come_first_and_are_numbered_as_given() -> None:
    pair = load("tiny")
    answers = [
        Answer(Request(prompt=(1,) * n, max_new_tokens=8), [2] * m)
        for n, m in ((9, 4), (1, 1), (3, 3), (2, 1))
    ]
    index = torch.cat([rows.answer for rows in score(pair, answers) if rows.answer is not None])
    assert index.tolist() == [1, 3, 2, 2, 2, 0, 0, 0, 0]


# --- the row before -------------------------------------------------------------------------------


@pytest.mark.parametrize("laws_at_once", [1, 64, 64 * 5, scoring.LAWS_AT_ONCE])
def test_the_row_before(laws_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same answer; its own where there is none; also across chunks."""
    monkeypatch.setattr(scoring, "LAWS_AT_ONCE", laws_at_once)
    pair = load("tiny")
    answers = mixed(pair)
    found = list(score(pair, answers))
    p, previous = by_answer(found, "p"), by_answer(found, "previous")
    for i, answer in enumerate(answers):
        assert len(p[i]) == len(answer.tokens)
        assert previous[i][0].tolist() == p[i][0].tolist()
        assert previous[i][1:].tolist() == p[i][:-1].tolist()


# --- what an earlier answer said ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([], [-1, -1, -1, -1]),
        ([4, 5, 6, 7], [4, 5, 6, 7]),
        ([4, 5, 6, 7, 8, 9], [4, 5, 6, 7]),
        ([4, 5], [4, 5, -1, -1]),
        ([4, 9, 6, 7], [4, 9, -1, -1]),  # known up to where the two part
        ([9, 5, 6, 7], [9, -1, -1, -1]),
    ],
)
def test_what_an_earlier_answer_said(earlier: list[int], expected: list[int]) -> None:
    pair = load("tiny")
    request = Request(prompt=(1, 2), max_new_tokens=4, sampling=Sampling(temperature=1.0))
    answers = [Answer(request, [4, 5, 6, 7], earlier=earlier), Answer(request, [4, 5])]
    replayed = by_answer(list(score(pair, answers)), "replayed")
    assert replayed[0].tolist() == expected
    assert replayed[1].tolist() == [-1, -1]


# --- labels and log probabilities -----------------------------------------------------------------


def test_labels_and_log_probabilities_stay_with_their_tokens() -> None:
    pair = load("tiny")

    def request(length: int) -> Request:
        return Request(prompt=(1,) * length, max_new_tokens=4, sampling=Sampling(temperature=1.0))

    answers = [
        Answer(request(9), [4, 5, 6], [-0.1, -0.2, -0.3], labels={"task": 2, "place": [0, 1, 0]}),
        Answer(request(1), [7], labels={"row": 1}),
        Answer(request(4), [8, 9], [-0.4, -0.5], labels={"place": [3, -1]}),
    ]
    found = list(score(pair, answers))
    own = by_answer(found, "own_logprobs")
    assert own[0].tolist() == [-0.1, -0.2, -0.3]
    assert own[1].isnan().all()
    assert own[2].tolist() == [-0.4, -0.5]
    groups = {}
    for name in ("task", "place", "row"):
        labelled = [replace(rows, near=rows.groups[name]) for rows in found]
        groups[name] = {i: v.tolist() for i, v in by_answer(labelled, "near").items()}
    assert groups == {
        "task": {0: [2, 2, 2], 1: [-1], 2: [-1, -1]},
        "place": {0: [0, 1, 0], 1: [-1], 2: [3, -1]},
        "row": {0: [-1, -1, -1], 1: [1], 2: [-1, -1]},
    }
    bare = [Answer(a.request, a.tokens) for a in answers]
    for rows in score(pair, bare):
        assert rows.own_logprobs is None
        assert rows.groups == {}


# --- the border of a filter -----------------------------------------------------------------------


def outside(settings: Sampling) -> tuple[Request, int, float]:
    """A request, the likeliest token that its filter leaves out, and by how much it missed."""
    pair = load("tiny")
    request = Request(prompt=(3, 1, 4), max_new_tokens=1, sampling=settings)
    scores, laws = oracle.laws_along(pair.target, request, [0], pair.vocab_size)
    left_out = scores[0].masked_fill(laws[0] > 0, -torch.inf)
    token = int(left_out.argmax())
    last = scores[0].masked_fill(laws[0] == 0, torch.inf).min()
    return request, token, float(last - left_out[token])


@pytest.mark.parametrize(
    "settings",
    [
        Sampling(temperature=1.0, top_k=3),
        Sampling(temperature=0.7, top_k=10),
        Sampling(temperature=1.0, top_p=0.6),
        Sampling(temperature=1.0, top_k=20, top_p=0.8),
        Sampling(),
    ],
    ids=["top_k", "warm", "top_p", "both", "greedy"],
)
def test_a_token_just_outside_a_filter_is_near(settings: Sampling) -> None:
    """With a margin that takes it past the last that is inside, and with no much smaller one."""
    pair = load("tiny")
    request, token, gap = outside(settings)
    assert gap > 1e-3
    answer = Answer(request, [token])

    def near(margin: float) -> list[bool]:
        (rows,) = score(pair, [answer], margin=margin)
        assert rows.near is not None
        assert float(rows.here.p) == 0
        return rows.near.tolist()

    assert near(1.01 * gap) == [True]
    assert near(0.0) == [False]
    if settings.top_p == 1:  # whose border is in the sum, not at the last token inside
        assert near(0.99 * gap) == [False]


def test_a_possible_token_is_not_near() -> None:
    pair = load("tiny")
    request = Request(prompt=(3, 1, 4), max_new_tokens=1, sampling=Sampling(temperature=1, top_k=3))
    _, laws = oracle.laws_along(pair.target, request, [0], pair.vocab_size)
    answers = [Answer(request, [token]) for token in laws[0].topk(3).indices.tolist()]
    for rows in score(pair, answers, margin=10.0):
        assert rows.near is not None
        assert not rows.near.any()


def test_a_forbidden_token_is_never_near() -> None:
    """No noise lifts a token that is banned, or an EOS that is too early."""
    pair = load("tiny")
    banned = Sampling(temperature=1.0, logit_bias={7: -math.inf})
    early = Sampling(temperature=1.0, min_new_tokens=2)
    answers = [
        Answer(Request(prompt=(3,), max_new_tokens=3, sampling=banned), [7]),
        Answer(Request(prompt=(3, 1), max_new_tokens=3, sampling=early, eos=(5,)), [5, 5, 5]),
    ]
    found = list(score(pair, answers, margin=1e3))
    near, p = by_answer(found, "near"), by_answer([replace(r, p=r.here.p) for r in found], "p")
    assert near[0].tolist() == [False]
    assert p[0].tolist() == [[0]]
    assert near[1].tolist() == [False, False, False]
    assert (p[1].flatten() > 0).tolist() == [False, False, True]


def test_each_row_has_its_own_border() -> None:
    """Rows of other parameters in one batch: each is raised under its own."""
    pair = load("tiny")
    request, token, gap = outside(Sampling(temperature=1.0, top_k=3))
    wider = outside(Sampling(temperature=1.0, top_k=12))
    narrow = Answer(request, [wider[1]])  # far outside of the three
    answers = [Answer(request, [token]), narrow, Answer(wider[0], [wider[1]])]
    margin = 1.01 * max(gap, wider[2])
    near = by_answer(list(score(pair, answers, margin=margin)), "near")
    assert [near[i].tolist() for i in range(3)] == [[True], [False], [True]]


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "tiny-gpt2"])
@pytest.mark.parametrize(("logits", "laws"), [(1, 1), (64 * 40, 64 * 3), (64 * 200, 64 * 1000)])
def test_no_more_is_held_than_stated(
    name: str, logits: int, laws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the laws are the same."""
    pair = load(name)
    answers = [
        replace(answer, labels={"place": list(range(len(answer.tokens)))}, earlier=answer.tokens)
        for answer in mixed(pair, 5)
    ]
    names = ("p", "q", "tokens", "previous", "replayed", "near", "scores")
    whole = {name: by_answer(list(score(pair, answers)), name) for name in names}
    held: list[tuple[int, ...]] = []
    made = scoring.Forced.logits

    def logits_of(forced: scoring.Forced, model: Any) -> Tensor:
        held.append((*forced.ids.shape, pair.vocab_size))
        return made(forced, model)

    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", logits)
    monkeypatch.setattr(scoring, "LAWS_AT_ONCE", laws)
    monkeypatch.setattr(scoring.Forced, "logits", logits_of)
    found = list(score(pair, answers))
    assert all(math.prod(shape) <= logits or shape[0] == 1 for shape in held)
    assert all(rows.p.numel() <= laws or len(rows) == 1 for rows in found)
    assert sum(len(rows) for rows in found) == sum(len(a.tokens) for a in answers)
    assert len(held) == 2 * len(answers) if logits == 1 else len(held) >= 2
    for name_ in names:
        parts = by_answer(found, name_)
        for i in range(len(answers)):
            torch.testing.assert_close(parts[i], whole[name_][i], atol=1e-4, rtol=1e-4)


def test_a_small_vocabulary_is_not_scored_at_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the logits, texts take memory too."""
    pair = load("micro")
    monkeypatch.setattr(scoring, "TOKENS_AT_ONCE", 50)
    request = Request(prompt=(1, 2), max_new_tokens=8, sampling=Sampling(temperature=1.0))
    answers = [Answer(request, [i % 8] * 8) for i in range(40)]
    batches = list(scoring._batches(answers, 8))
    assert [len(batch) for batch in batches] == [5] * 8
    equal_those_alone(pair, answers, list(score(pair, answers)))


# --- what makes no sense --------------------------------------------------------------------------

REQUEST = Request(prompt=(1, 2), max_new_tokens=4, sampling=Sampling(temperature=1.0))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(REQUEST, []), "an empty list of tokens"),
        (Answer(REQUEST, [1, 64]), r"token 64 is outside the vocabulary 0\.\.63"),
        (Answer(REQUEST, [-1]), r"token -1 is outside the vocabulary 0\.\.63"),
        (Answer(REQUEST, [1, 2], [-0.5]), "1 logprobs for 2 tokens"),
        (Answer(REQUEST, [1], [-0.5, -0.5]), "2 logprobs for 1 tokens"),
        (Answer(REQUEST, [1, 2], labels={"place": [1, 2, 3]}), "3 place for 2 tokens"),
    ],
)
def test_a_bad_answer_is_named(answer: Answer, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        list(score(load("tiny"), [Answer(REQUEST, [1]), answer]))
