"""Certificates cover the truth whenever one looks; growth foretells what a test can see."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from harness.stats import faults
from harness.stats.certificate import LEAK, OVER_ACCEPTANCE, Certificate, Family, Growth
from harness.stats.experts import NAMED, Expert, log_ratios
from harness.stats.rows import Rows
from harness.stats.simulated import contexts

NAN = float("nan")
P, Q = [0.8, 0.2], [0.4, 0.6]
ALPHA = 0.05
LOOKS = [10, 20, 40, 80, 150, 300, 600, 1000, 1500, 2000]
RUNS = 1000


def drawn(rows: Rows, law: Tensor, count: int, seed: int) -> Rows:
    """``count`` tokens from ``law`` [C, V], each in a context picked at random."""
    generator = torch.Generator().manual_seed(seed)
    where = torch.randint(len(law), (count,), generator=generator)
    tokens = torch.multinomial(law[where], 1, generator=generator).squeeze(1)
    assert rows.q is not None
    return Rows(rows.p[where], tokens, rows.q[where])


def binary(tokens: list[int]) -> Rows:
    n = len(tokens)
    return Rows.of(torch.tensor([P] * n), tokens, torch.tensor([Q] * n))


def coarse(*values: float) -> Family:
    """Leaks of a few values."""
    experts = tuple(
        Expert("leak", f"{v}", partial(faults.leak, rate=v), frozenset({"q"})) for v in values
    )
    return Family("leak", values, "at most {} of them", experts)


def least_uppers(family: Family, rows: Rows, law: Tensor, seed: int) -> np.ndarray:
    """Of ``RUNS`` runs of tokens from ``law``: ``upper`` at every look, [RUNS, looks].

    All runs at once, from a table of log ratios; the first few are done by ``Certificate`` too.
    """
    rng = np.random.default_rng(seed)
    cells = (law / law.sum()).flatten().cumsum(0).numpy()  # of a context and a token
    table = log_ratios(family.experts, rows.everywhere).flatten(0, 1).numpy()  # [cells, J]
    wealth = np.zeros((RUNS, len(family.values)))
    last = np.full(RUNS, len(family.values) - 1)
    certificates = [Certificate(family, ALPHA) for _ in range(3)]
    values, uppers = np.array(family.values), []
    assert rows.q is not None
    for count in np.diff([0, *LOOKS]):
        drawn_cells = np.searchsorted(cells, rng.random((RUNS, count)), side="right")
        for start in range(0, count, 50):
            wealth += table[drawn_cells[:, start : start + 50]].sum(1)
        for run, certificate in enumerate(certificates):
            where, tokens = map(torch.from_numpy, divmod(drawn_cells[run], law.shape[1]))
            certificate.update(Rows(rows.p[where], tokens, rows.q[where]))
        mixture = np.logaddexp.reduce(wealth, axis=1, keepdims=True) - math.log(len(values))
        kept = mixture - wealth < -math.log(ALPHA)
        last = np.minimum(last, kept.shape[1] - 1 - kept[:, ::-1].argmax(1))
        uppers.append(values[np.minimum(last + 1, len(values) - 1)])
        assert [c.upper for c in certificates] == uppers[-1][: len(certificates)].tolist()
    return np.stack(uppers, 1)


def covers(uppers: np.ndarray, truth: float) -> None:
    """The share of runs whose bound was ever below the truth is not above the level."""
    missed = int((uppers < truth).any(1).sum())
    interval = stats.binomtest(missed, len(uppers)).proportion_ci(0.99)
    assert interval.low <= ALPHA, missed / len(uppers)


# --- coverage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [0.0, 0.02, 0.2])
def test_a_leak_is_covered_whenever_one_looks(truth: float) -> None:
    rows = contexts()
    law = faults.leak(rows.everywhere, truth)
    uppers = least_uppers(LEAK, rows, law, 1)
    covers(uppers, truth)
    assert np.median(uppers[:, -1]) < max(4 * truth, 0.06)  # and something is said


@pytest.mark.parametrize("truth", [1.0, 1.1])
def test_over_acceptance_is_covered_whenever_one_looks(truth: float) -> None:
    rows = contexts()
    law = faults.over_accept(rows.everywhere, truth)
    uppers = least_uppers(OVER_ACCEPTANCE, rows, law, 2)
    covers(uppers, truth)
    assert np.median(uppers[:, -1]) < 1.6


def test_a_truth_between_two_values_stays_covered() -> None:
    """Its wealth against both wanders: in time it rejects the one, and later the other."""
    rows = contexts()
    family = coarse(0.0, 0.2, 0.4, 1.0)
    law = faults.leak(rows.everywhere, 0.3)
    missed, both = 0, 0
    for run in range(100):
        certificate, ever = Certificate(family, ALPHA), torch.zeros(4, dtype=torch.bool)
        tokens = drawn(rows, law, 6000, run)
        for start in range(0, 6000, 200):
            assert tokens.tokens is not None
            assert tokens.q is not None
            cut = slice(start, start + 200)
            certificate.update(Rows(tokens.p[cut], tokens.tokens[cut], tokens.q[cut]))
            mixture = certificate.log_wealths.logsumexp(0) - math.log(4)
            ever |= mixture - certificate.log_wealths >= -math.log(ALPHA)
        missed += certificate.upper < 0.3
        both += bool(ever.all())
    assert both > 10  # all values are rejected at one time or another
    assert stats.binomtest(missed, 100).proportion_ci(0.99).low <= ALPHA


def test_impossible_tokens_count_as_what_they_are() -> None:
    """A fifth from a draft that has half its mass where the target has none.

    The tokens that the target allows look like fewer leaks: only with the others is it a fifth.
    """
    n = 400
    p, q = torch.tensor([0.5, 0.5, 0.0]).double(), torch.tensor([0.25, 0.25, 0.5]).double()
    law = (0.8 * p + 0.2 * q).expand(n, 3)
    missed = 0
    for run in range(200):
        tokens = torch.multinomial(law, 1, generator=torch.Generator().manual_seed(run)).squeeze(1)
        certificate = Certificate(LEAK, ALPHA)
        for start in range(0, n, 100):
            cut = tokens[start : start + 100]
            certificate.update(Rows(p.expand(len(cut), 3), cut, q.expand(len(cut), 3)))
            if certificate.upper < 0.2:
                missed += 1
                break
        assert certificate.upper < 0.6
    assert stats.binomtest(missed, 200).proportion_ci(0.99).low <= ALPHA


def test_an_impossible_token_rules_out_no_leak_at_all() -> None:
    rows = Rows.of(torch.tensor([[1.0, 0.0]]), [1], torch.tensor([[0.5, 0.5]]))
    certificate = Certificate(LEAK, ALPHA)
    certificate.update(rows)
    assert certificate.log_wealths[0] == -math.inf
    assert certificate.log_wealths[1:].tolist() == pytest.approx(
        [math.log(v / 2) for v in LEAK.values[1:]]
    )
    assert not certificate.says_something
    # Near the border of a filter it proves nothing, and of over-acceptance it says nothing.
    near = replace(rows, near=torch.tensor([True]))
    for family, seen in ((LEAK, near), (OVER_ACCEPTANCE, rows)):
        certificate = Certificate(family, ALPHA)
        certificate.update(seen)
        assert certificate.log_wealths.abs().max() == 0


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [LEAK, OVER_ACCEPTANCE], ids=lambda family: family.name)
def test_more_tokens_rule_out_more(family: Family) -> None:
    rows = contexts()
    certificate = Certificate(family, ALPHA)
    assert not certificate.says_something
    assert certificate.upper == family.values[-1]
    uppers = []
    for seed in range(30):
        certificate.update(drawn(rows, rows.p, 300, seed))
        uppers.append(certificate.upper)
    assert uppers == sorted(uppers, reverse=True)
    assert len(set(uppers)) > 4
    assert certificate.says_something
    no_fault = family.values[0]
    assert no_fault < uppers[-1] < no_fault + 0.02 * (family.values[-1] - no_fault)


@pytest.mark.parametrize("family", [LEAK, OVER_ACCEPTANCE], ids=lambda family: family.name)
def test_where_the_draft_is_the_target_nothing_is_said(family: Family) -> None:
    rows = contexts()
    same = replace(rows, q=rows.p)
    certificate = Certificate(family, ALPHA)
    for seed in range(5):
        certificate.update(drawn(same, same.p, 2000, seed))
    assert not certificate.says_something
    assert certificate.upper == family.values[-1]


def test_a_bound_at_the_end_of_the_scale_says_nothing() -> None:
    """That not all tokens follow the draft is no bound below 1."""
    certificate = Certificate(coarse(0.0, 0.9, 1.0), ALPHA)
    certificate.update(Rows.of(torch.tensor([[0.5, 0.5]]), [1], torch.tensor([[1.0, 0.0]])))
    assert certificate.log_wealths[-1] == -math.inf
    assert (certificate.upper, certificate.says_something) == (1.0, False)
    certificate.update(
        Rows.of(torch.tensor([[0.5, 0.5]] * 9), [1] * 9, torch.tensor([[1.0, 0.0]] * 9))
    )
    assert (certificate.upper, certificate.says_something) == (0.9, True)


def test_by_hand() -> None:
    """Token 0 after (.8, .2) and (.4, .6): 1, .75 and .5 for leaks of 0, a half and all."""
    certificate = Certificate(coarse(0.0, 0.5, 1.0), 0.1)
    certificate.update(binary([0, 0, 0]))
    wealths = [1, 0.75**3, 0.5**3]
    assert certificate.log_wealths.exp().tolist() == pytest.approx(wealths)
    assert (certificate.upper, certificate.says_something) == (1.0, False)
    certificate.update(binary([0, 0]))
    # All of them is out, and half of them is not: nothing is below what may lie between.
    assert sum([1, 0.75**5, 0.5**5]) / 3 / 0.5**5 > 10
    assert (certificate.upper, certificate.says_something) == (1.0, False)
    certificate.update(binary([0] * 9))
    assert sum([1, 0.75**14, 0.5**14]) / 3 / 0.75**14 > 10
    assert (certificate.upper, certificate.says_something) == (0.5, True)
    assert str(certificate) == "at most 0.5 of them"


def test_in_words() -> None:
    for family, words in (
        (LEAK, r"at most 1 of the tokens follow the draft instead of the target"),
        (OVER_ACCEPTANCE, r"drafts are accepted at most 9 times too readily"),
    ):
        assert str(Certificate(family, ALPHA)) == words


@pytest.mark.parametrize("family", [LEAK, OVER_ACCEPTANCE], ids=lambda family: family.name)
def test_families_go_from_no_fault_to_the_grossest(family: Family) -> None:
    rows = contexts()
    none = family.experts[0].law(rows.everywhere)
    torch.testing.assert_close(none, rows.p)
    assert list(family.values) == sorted(family.values)
    laws = [e.law(rows.everywhere) for e in family.experts]
    off = [float((law - rows.p).abs().sum()) for law in laws]
    assert off == sorted(off)
    assert len(family.experts) == len(family.values) > 20


@pytest.mark.parametrize("family", [LEAK, OVER_ACCEPTANCE], ids=lambda family: family.name)
def test_it_continues_from_a_saved_state(family: Family) -> None:
    rows = contexts()
    whole, saved = Certificate(family, ALPHA), Certificate(family, ALPHA).state()
    for seed in range(6):
        batch = drawn(rows, rows.p, 200, seed)
        parts = Certificate(family, ALPHA)
        parts.resume(json.loads(json.dumps(saved), parse_constant=pytest.fail))
        parts.update(batch)
        whole.update(batch)
        saved = parts.state()
        assert (parts.upper, saved) == (whole.upper, whole.state())
    certain = Certificate(LEAK, ALPHA)  # what is ruled out is so for good
    certain.update(Rows.of(torch.tensor([[0.5, 0.5]]), [1], torch.tensor([[1.0, 0.0]])))
    json.dumps(certain.state(), allow_nan=False)
    again = Certificate(LEAK, ALPHA)
    again.resume(certain.state())
    assert again.log_wealths.tolist() == certain.log_wealths.tolist()


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, NAN])
def test_a_bad_level_is_named(alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha is {alpha}"):
        Certificate(LEAK, alpha)


# --- growth ---------------------------------------------------------------------------------------


def test_growth_by_hand() -> None:
    """(.6, .4) against (.8, .2)."""
    half = coarse(0.5).experts
    growth = Growth(half)
    assert growth.mean(0) == 0
    growth.update(binary([0, 1, 0]))
    ratios = [math.log(0.75), math.log(2)]
    mean = 0.6 * ratios[0] + 0.4 * ratios[1]
    square = 0.6 * ratios[0] ** 2 + 0.4 * ratios[1] ** 2
    assert growth.mean(0) == pytest.approx(mean)
    assert growth.variance(0) == pytest.approx(square - mean**2)
    # Half of the runs are there when the mean is; what is asked of 99% needs more.
    assert growth.tokens_needed(0, 7.0, 0.5) == pytest.approx(7 / mean)
    n = growth.tokens_needed(0, 7.0, 0.99)
    z = stats.norm.ppf(0.99)
    assert n * mean - z * math.sqrt(n * growth.variance(0)) == pytest.approx(7)


def test_growth_does_not_depend_on_what_was_emitted() -> None:
    one, other = Growth(NAMED[:3]), Growth(NAMED[:3])
    one.update(binary([0, 0, 0, 0]))
    for tokens in ([1, 1], [1, 0]):
        other.update(binary(tokens))
    assert [one.mean(j) for j in range(3)] == pytest.approx([other.mean(j) for j in range(3)])
    assert one.rows == other.rows == 4


def test_growth_is_the_divergence_from_the_target() -> None:
    rows = contexts()
    growth = Growth(NAMED)
    growth.update(rows)
    for j, expert in enumerate(NAMED):
        law = expert.law(rows.everywhere)
        expected = stats.entropy(law.numpy(), rows.p.numpy(), axis=1).mean()
        assert growth.mean(j) == pytest.approx(expected, abs=1e-12), expert.says


def test_what_never_grows_is_never_seen() -> None:
    rows = contexts()
    growth = Growth([*coarse(0.0, 0.3).experts])
    growth.update(replace(rows, q=rows.p))
    assert growth.tokens_needed(0, 7.0, 0.99) == math.inf
    assert growth.tokens_needed(1, 7.0, 0.99) == math.inf
    assert growth.visible(10**9, 7.0, 0.99) == []


@pytest.mark.parametrize("power", [0.5, 0.9, 0.99])
def test_power_is_what_simulation_gives(power: float) -> None:
    """Of 1000 runs of the tokens that are said to be needed."""
    rows = contexts()
    threshold = math.log(1e6)
    for law in (partial(faults.leak, rate=0.1), partial(faults.over_accept, factor=1.5)):
        expert = Expert("", "", law, frozenset({"q"}))
        growth = Growth([expert])
        growth.update(rows)
        needed = math.ceil(growth.tokens_needed(0, threshold, power))
        assert 100 < needed < 5000
        rng = np.random.default_rng(3)
        wrong = law(rows.everywhere)
        cells = rng.multinomial(needed, (wrong / wrong.sum()).flatten().numpy(), size=1000)
        wealth = cells @ log_ratios([expert], rows.everywhere).flatten().numpy()
        interval = stats.binomtest(int((wealth >= threshold).sum()), 1000).proportion_ci(0.999)
        # The sum is nearly normal: a hundredth is left for what it is not.
        assert interval.low - 0.01 <= power <= interval.high + 0.01


def test_what_is_visible_is_the_slightest_of_each_family() -> None:
    rows = contexts()
    chosen = [e for e in NAMED if e.family in ("leak", "over-accept", "resample")]
    growth = Growth(chosen)
    growth.update(rows)
    needed = {e.says: growth.tokens_needed(j, 7.0, 0.9) for j, e in enumerate(chosen)}
    for tokens in (5, 50, 500, 5000, 500_000):
        found = growth.visible(tokens, 7.0, 0.9)
        assert len({e.family for e in found}) == len(found)
        for family in ("leak", "over-accept", "resample"):
            seen = [n for e in chosen for n in [needed[e.says]] if e.family == family]
            most = max((n for n in seen if n <= tokens), default=None)
            shown = [needed[e.says] for e in found if e.family == family]
            assert shown == ([] if most is None else [most])
    assert growth.visible(0, 7.0, 0.9) == []
    slightest = [e.says for e in growth.visible(10**9, 7.0, 0.9)]
    assert "a share of 0.01 of the tokens comes from the draft, unverified" in slightest
    assert "drafts are accepted with probability min(1, 1.02 p/q)" in slightest


def test_one_impossible_token_is_proof_and_makes_a_fault_visible() -> None:
    """p allows the first of two tokens, and a tenth of the expert's law is on the other."""
    rows = Rows(
        torch.tensor([[1.0, 0.0]], dtype=torch.float64), q=torch.tensor([[0.0, 1.0]]).double()
    )
    growth = Growth([Expert("leak", "a tenth", partial(faults.leak, rate=0.1))])
    growth.update(rows)
    assert growth.impossible(0) == pytest.approx(0.1)
    assert growth.tokens_needed(0, 20.0, 0.99) == pytest.approx(math.log(0.01) / math.log(0.9))
    assert growth.visible(43, 20.0, 0.99) == []
    assert len(growth.visible(44, 20.0, 0.99)) == 1
