"""Experts: each is a bet that pays 1 on average under the target's law."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from strategies import examples, observations, sampled_observations

from harness.contract import Request, Sampling
from harness.stats.eprocess import TILT, EProcess
from harness.stats.experts import NAMED, Expert, log_ratios, log_weights, of_sampling
from harness.stats.rows import Rows
from harness.stats.simulated import FILTERED, contexts
from reference_impl import sampling


def pays_one_on_average(experts: list[Expert], rows: Rows) -> None:
    """sum_x p(x) a(x) / p(x) is the mass that the expert's law has where p has any."""
    at = rows.everywhere
    on_average = (at.p.unsqueeze(-1) * log_ratios(experts, at).exp()).sum(1)
    for j, expert in enumerate(experts):
        law = expert.law(at)
        assert float(law.min()) >= 0, expert.says
        assert law.sum(-1).tolist() == pytest.approx([1] * len(rows), abs=1e-9), expert.says
        within = (law * (at.p > 0)).sum(-1)
        assert on_average[:, j].tolist() == pytest.approx(within.tolist(), abs=1e-9), expert.says
        assert float(on_average[:, j].max()) <= 1 + 1e-9, expert.says
        outside = (law * (at.p == 0)).sum(-1)
        continuous = on_average[outside == 0, j]
        assert continuous.tolist() == pytest.approx([1] * len(continuous), abs=1e-9), expert.says


@examples(200)
@given(rows=observations())
def test_a_named_expert_pays_one_on_average(rows: Rows) -> None:
    pays_one_on_average(list(NAMED), rows)


@examples(200)
@given(sampled_observations())
def test_so_does_one_on_sampling_parameters(case: tuple[Sampling, Rows]) -> None:
    settings, rows = case
    pays_one_on_average(of_sampling(settings), rows)


def test_so_does_one_on_a_large_vocabulary() -> None:
    """Of which only the likeliest tokens are looked at, and the rest stays as it is."""
    vocab, settings = 5000, Sampling(temperature=0.8, top_k=1500, top_p=0.95, min_p=1e-4)
    request = Request(prompt=(0,), max_new_tokens=1, sampling=settings)
    parameters = sampling.Parameters.of([request] * 3, vocab)
    scale = torch.tensor([[0.1], [1.0], [4.0]])  # nearly flat, and peaked
    scores = scale * torch.randn(3, vocab, generator=torch.Generator().manual_seed(0))
    p = sampling.normalise(scores, parameters)
    rows = Rows.of(p, [0, 1, 2], scores=scores, parameters=parameters)
    pays_one_on_average(of_sampling(settings), rows)


@pytest.mark.parametrize("settings", [None, FILTERED], ids=["plain", "filtered"])
def test_so_do_all_on_larger_laws(settings: Sampling | None) -> None:
    rows = contexts(settings=settings)
    pays_one_on_average([*NAMED, *of_sampling(settings or Sampling(temperature=1.0))], rows)


def test_families_share_the_weight_and_so_do_their_members() -> None:
    families = [e.family for e in (*NAMED, *of_sampling(FILTERED), TILT)]
    weights = log_weights(families).exp()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    for family, members in Counter(families).items():
        mine = weights[[f == family for f in families]]
        assert float(mine.sum()) == pytest.approx(1 / len(set(families)))
        assert mine.tolist() == pytest.approx([float(mine[0])] * members)
    assert log_weights(["a", "b", "b"]).exp().tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_names_differ() -> None:
    names = [e.says for e in (*NAMED, *of_sampling(FILTERED), TILT)]
    assert len(set(names)) == len(names)


def test_without_the_draft_its_experts_are_left_out() -> None:
    process = EProcess(NAMED, q=False, alpha=0.01)
    assert process.experts == (*(e for e in NAMED if "q" not in e.needs), TILT)
    assert EProcess(NAMED, q=True, alpha=0.01).experts == (*NAMED, TILT)
    # Those that are left look at no draft, and weigh as much as if there were no others.
    rows = contexts()
    process.update(Rows(rows.p, rows.p.argmax(-1), None, rows.previous, rows.replayed))
    assert float(process.log_weights.exp().sum()) == pytest.approx(1)


def test_an_expert_says_what_it_needs() -> None:
    """On rows that have nothing else, it works."""
    rows = contexts(settings=FILTERED)
    for expert in (*NAMED, *of_sampling(FILTERED)):
        given_ = {name: getattr(rows, name) for name in expert.needs}
        expert.law(Rows(rows.p, **given_).everywhere)


IGNORED = "top_k, top_p and min_p are ignored"
FIRST = "the filters come before the temperature"
OF_TEMPERATURE = ["the temperature is ignored", "the temperature is applied twice"]
OF_TOP_K = ["top_k is one larger", "top_k is one smaller"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Sampling(temperature=1.0), []),
        (Sampling(temperature=1.0, repetition_penalty=1.2, logit_bias={1: 2.0}), []),
        (Sampling(temperature=0.7), OF_TEMPERATURE),
        (Sampling(temperature=1.0, min_p=0.1), [IGNORED]),
        (Sampling(temperature=1.4, min_p=0.1), [*OF_TEMPERATURE, IGNORED, FIRST]),
        (Sampling(temperature=1.0, top_k=5), [IGNORED, *OF_TOP_K]),
        (Sampling(temperature=1.0, top_p=0.9), [IGNORED, "top_p is 0.95", "top_p is 0.8"]),
        (Sampling(temperature=1.0, top_p=0.2), [IGNORED, "top_p is 0.6", "top_p is 0.01"]),
        (
            Sampling(temperature=0.8, top_k=20, top_p=0.9),
            [
                *OF_TEMPERATURE, IGNORED, FIRST, *OF_TOP_K, "top_p is 0.95", "top_p is 0.8",
                "top_p looks at the law before top_k", "top_k is ignored", "top_p is ignored",
            ],
        ),
        (Sampling(temperature=0.0), []),
        (Sampling(temperature=0.0, top_k=5, top_p=0.9), []),
    ],
)  # fmt: skip
def test_what_applies(settings: Sampling, expected: list[str]) -> None:
    found = of_sampling(settings)
    assert sorted(e.says for e in found) == sorted(expected)
    assert {e.family for e in found} <= {"parameters"}


def test_a_right_request_has_no_expert_of_its_own_law() -> None:
    """Whatever is said to differ does, on laws where there is room for it."""
    rows = contexts(settings=FILTERED)
    for expert in of_sampling(FILTERED):
        assert not torch.allclose(expert.law(rows.everywhere), rows.p, atol=1e-6), expert.says
