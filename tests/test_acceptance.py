"""Acceptance: trials, bets and identities."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import examples
from torch import Tensor

from harness.checks.budget import PROFILES
from harness.checks.exact_law import ACCURACY, distance, output_law, product_law
from harness.contract import Completion, Request, Round, Sampling
from harness.models import load_pair
from harness.stats.acceptance import AcceptanceTest, excess, smallest_excess, trials_needed
from harness.stats.trials import Floats, Trials, wrong_rounds
from reference_impl.autoregressive import Laws, finished
from reference_impl.randomness import Randomness, Seeded

load = functools.cache(load_pair)
BUDGET = dataclasses.replace(
    PROFILES["ci"], draft_tokens=(1, 4), prompts=1, new_tokens=32, samples=2_000
)
ALPHA = 1e-6  # of one statistical test here: none should ever be red by chance


def first(accepted: Sequence[bool] | Floats, beta: Sequence[float] | Floats) -> Trials:
    """Trials at the first position."""
    zeros = np.zeros(len(beta), dtype=np.int64)
    return Trials(zeros, np.asarray(accepted, dtype=np.bool_), np.asarray(beta, dtype=np.float64))


# --- rounds as trials -----------------------------------------------------------------------------

BAD_ROUNDS = [
    (None, 3, "no rounds for 3 tokens"),
    ([], 3, "an empty list of rounds for 3 tokens"),
    ([Round(2, 3)], 4, "round 0 accepted 3 of 2 drafted tokens"),
    ([Round(2, -1)], 1, "round 0 accepted -1 of 2 drafted tokens"),
    ([Round(4, 0), Round(5, 0)], 2, "round 1 drafted 5 tokens, K is 4"),
    ([Round(2.0, 1)], 2, "round 0 counts 1 of 2.0: they must be ints"),  # type: ignore[arg-type]
    ([Round(4, 1)], 3, "the rounds account for 2 tokens, the output has 3"),
    ([Round(4, 2), Round(4, 0)], 3, "the rounds before the last one account for 3 tokens, the"),
]


@pytest.mark.parametrize(("rounds", "tokens", "words"), BAD_ROUNDS)
def test_rounds_that_do_not_add_up(rounds: list[Round] | None, tokens: int, words: str) -> None:
    assert wrong_rounds(rounds, tokens, 4).startswith(words)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[list[Round], int]:
    """Rounds, and the length of an output that their last one may have lost its end of."""
    rounds = []
    for _ in range(draw(st.integers(1, 5))):
        drafted = draw(st.integers(0, 5))
        rounds.append(Round(drafted, draw(st.integers(0, drafted))))
    total = sum(entry.accepted + 1 for entry in rounds)
    return rounds, draw(st.integers(total - rounds[-1].accepted, total))


@examples(200)
@given(case=outputs())
def test_a_position_counts_if_its_token_is_in_the_output(case: tuple[list[Round], int]) -> None:
    rounds, tokens = case
    assert not wrong_rounds(rounds, tokens, None)
    # Token by token: an accepted draft, the one in place of a rejected draft, or a bonus (None).
    kinds: list[tuple[int, bool] | None] = []
    for entry in rounds:
        kinds += [(i, True) for i in range(entry.accepted)]
        kinds.append((entry.accepted, False) if entry.accepted < entry.drafted else None)
    beta = np.linspace(0.1, 0.9, tokens)
    wanted = [(*k, b) for k, b in zip(kinds[:tokens], beta, strict=True) if k is not None]
    trials = Trials.of(rounds, beta)
    found = zip(trials.position, trials.accepted, trials.beta, strict=True)
    assert [tuple(trial) for trial in found] == wanted


def test_bad_input_is_named() -> None:
    for beta, words in ((1.5, "beta is 1.5"), (-0.1, "beta is -0.1"), (math.nan, "beta is nan")):
        with pytest.raises(ValueError, match=words):
            Trials.of([Round(1, 1)], [beta, 0.5])
        with pytest.raises(ValueError, match=words):
            first([True], [beta])
    with pytest.raises(ValueError, match="accepted 2 of 1 drafted"):
        Trials.of([Round(1, 2)], [0.5] * 3)
    with pytest.raises(ValueError, match="an output of no tokens"):
        Trials.of([Round(1, 0)], [])
    with pytest.raises(ValueError, match="an empty list of rounds"):
        Trials.of([], [0.5])
    with pytest.raises(ValueError, match="1, 2 and 1 entries"):
        first([True, False], [0.5])
    with pytest.raises(ValueError, match="an empty list of trials"):
        Trials.joined([])
    with pytest.raises(ValueError, match="slack is -1"):
        AcceptanceTest(0.01).update(first([True], [0.5]), slack=-1)
    with pytest.raises(ValueError, match=r"alpha is 1\.5"):
        AcceptanceTest(1.5)
    with pytest.raises(ValueError, match=r"the alternative is 1\.2"):
        trials_needed(np.array([0.5]), np.array([1.2]), 0.01)
    with pytest.raises(ValueError, match="0 chances for 0 trials"):
        trials_needed(np.empty(0), np.empty(0), 0.01)


# --- the trio -------------------------------------------------------------------------------------

BETAS = {
    "hostile": (1.0, 19.0),  # parameters of a beta distribution
    "bad": (2.0, 4.0),
    "good": (18.0, 2.0),
    "edges": (0.05, 0.05),  # nearly all of them next to 0 or 1
}


def test_level_under_optional_stopping() -> None:
    """A look after every few trials of whatever beta; either direction keeps its level."""
    rng, alpha, runs = np.random.default_rng(7), 0.1, 2_000
    contexts = np.stack([rng.beta(*shape, 500) for shape in BETAS.values()])
    rejected = {"more": 0, "less": 0}
    for run in range(runs):
        test = AcceptanceTest(alpha)
        for _ in range(8):
            beta = rng.choice(contexts[run % len(contexts)], 12)
            test.update(first(rng.random(12) < beta, beta))
        rejected["more"] += test.rejects("more", "first")
        rejected["less"] += test.rejects("less", "first")
    for count in rejected.values():
        interval = stats.binomtest(count, runs).proportion_ci(1 - ALPHA, method="exact")
        assert interval.low <= alpha
        assert count > 0  # nor is it idle


def test_slack_keeps_the_level_where_beta_is_a_little_off() -> None:
    rng, off = np.random.default_rng(8), 0.05
    beta = rng.uniform(0.1, 0.9, 20_000)
    with_slack, without = AcceptanceTest(1e-3), AcceptanceTest(1e-3)
    trials = first(rng.random(20_000) < beta + off, beta)
    with_slack.update(trials, off)
    without.update(trials)
    assert without.rejects("more", "first")
    assert not with_slack.rejects("more", "first")


@pytest.mark.parametrize(
    ("kind", "slack"),
    [("hostile", 0.0), ("bad", 0.0), ("good", 0.0), ("bad", 0.02), ("good", 0.02)],
)
def test_the_sample_size_finds_its_excess_and_half_of_it_does_not(kind: str, slack: float) -> None:
    rng, alpha, runs = np.random.default_rng(9), 1e-4, 300
    contexts = rng.beta(*BETAS[kind], 3_000)
    chances = excess(contexts, 0.3)
    needed = math.ceil(trials_needed(contexts, chances, alpha, 0.95, slack))

    def found(trials: int) -> int:
        count = 0
        for _ in range(runs):
            at = rng.integers(0, len(contexts), trials)
            test = AcceptanceTest(alpha)
            test.update(first(rng.random(trials) < chances[at], contexts[at]), slack)
            count += test.rejects("more", "first")
        return count

    assert stats.binomtest(found(needed), runs, 0.95, "less").pvalue > 1e-3
    assert stats.binomtest(found(needed // 2), runs, 0.95, "less").pvalue < ALPHA


def test_the_smallest_excess_is_the_inverse_of_the_sample_size() -> None:
    contexts = np.random.default_rng(1).beta(2, 4, 2_000)
    for trials in (500, 5_000, 50_000):
        visible = smallest_excess(contexts, trials, 1e-5)
        needed = trials_needed(contexts, excess(contexts, visible), 1e-5)
        assert needed == pytest.approx(trials, rel=0.02)
    assert smallest_excess(contexts, 5_000, 1e-5, slack=0.05) > 0.05 / contexts.max()
    assert smallest_excess(contexts, 1, 1e-5) == math.inf
    assert smallest_excess(np.ones(5), 10_000, 1e-5) == math.inf  # there is no more than all
    assert trials_needed(contexts, contexts, 1e-5) == math.inf


def test_the_interval_covers_the_ratio_at_every_time_and_shrinks() -> None:
    rng, alpha, runs = np.random.default_rng(3), 0.1, 200
    missed, widths = 0, []
    for _ in range(runs):
        test, chances, covered = AcceptanceTest(alpha), 0.0, True
        for _ in range(6):
            beta = rng.beta(6, 3, 60)
            truth = np.where(rng.random(60) < 0.5, 0.7, 1.0) * beta  # not one ratio for all
            test.update(first(rng.random(60) < truth, beta))
            chances += float(truth.sum())
            low, high = test.ratio("first")
            covered &= low <= chances / test.totals("first")[2] <= high
        missed += not covered
        widths.append(high - low)
    assert stats.binomtest(missed, runs, alpha, "greater").pvalue > ALPHA
    assert float(np.mean(widths)) < 0.45
    for accepted in (0, 400):  # the ends of the range are no trouble
        test = AcceptanceTest(alpha)
        test.update(first([accepted > 0] * 400, [0.5] * 400))
        low, high = test.ratio("first")
        assert (low, high > 0) == (0, True) if not accepted else (low > 1, high == 2)


def test_a_saved_state_goes_on() -> None:
    rng = np.random.default_rng(5)
    beta = rng.random(400)
    trials = Trials(rng.integers(0, 4, 400), rng.random(400) < 0.9 * beta, beta)
    halves = [
        Trials(trials.position[part], trials.accepted[part], trials.beta[part])
        for part in (slice(0, 170), slice(170, 400))
    ]
    whole, resumed = AcceptanceTest(0.01), AcceptanceTest(0.01)
    for half in halves:
        whole.update(half)
        saved = json.loads(json.dumps(resumed.state()))
        resumed = AcceptanceTest(0.01)
        resumed.resume(saved)
        resumed.update(half)
    assert resumed.state() == whole.state()
    assert resumed.by_position() == whole.by_position()
    with pytest.raises(ValueError, match="other bets"):
        resumed.resume({**whole.state(), "tilts": [1.0]})


# --- an exact rule that accepts more at later positions -------------------------------------------

P = [[0.45, 0.35, 0.2], [0.1, 0.3, 0.6], [0.5, 0.1, 0.4]]
Q = [[0.15, 0.15, 0.7], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1]]


def markov(rows: list[list[float]]) -> Laws:
    """Row i follows token i; row 0 opens."""

    def laws(output: Sequence[int], count: int) -> Tensor:
        last = [0, *output]
        return torch.tensor([rows[t] for t in last[len(last) - count :]], dtype=torch.float64)

    return laws


def block_verified(p: Laws, q: Laws, request: Request, randomness: Randomness) -> Completion:
    """Decode by block verification (Sun et al. 2024, algorithm 2)."""
    output: list[int] = []
    rounds: list[Round] = []
    while True:
        count = min(request.draft_tokens, request.max_new_tokens - len(output) - 1)
        drafts: list[int] = []
        for _ in range(count):
            drafts.append(randomness.choice(q([*output, *drafts], 1)[0]))
        accepted, left, at = 0, 1.0, [1.0]
        for i, d in enumerate(drafts):
            before = [*output, *drafts[:i]]
            left = min(1.0, left * float(p(before, 1)[0, d] / q(before, 1)[0, d]))
            at.append(left)
            chance = left
            if i + 1 < count:
                after = [*output, *drafts[: i + 1]]
                rest = float((left * p(after, 1)[0] - q(after, 1)[0]).clamp(min=0).sum())
                chance = rest / (rest + 1 - left) if rest + 1 - left > 0 else 1.0
            if randomness.flip(chance):
                accepted = i + 1
        law = p([*output, *drafts[:accepted]], 1)[0]
        if accepted < count:
            law = (at[accepted] * law - q([*output, *drafts[:accepted]], 1)[0]).clamp(min=0)
        rounds.append(Round(count, accepted))
        for token in [*drafts[:accepted], randomness.choice(law / law.sum())]:
            output.append(token)
            if reason := finished(output, request):
                return Completion(tokens=output, finish_reason=reason, rounds=rounds)


def test_block_verification_is_exact_and_no_fault() -> None:
    p, q = markov(P), markov(Q)
    request = Request(
        prompt=(0,), max_new_tokens=3, sampling=Sampling(temperature=1.0), draft_tokens=2
    )
    law = output_law(lambda randomness: block_verified(p, q, request, randomness))
    assert distance(law, product_law(p, request)) < ACCURACY

    beta = np.minimum(P, Q).sum(1)  # by the token before
    longer = msgspec.structs.replace(request, max_new_tokens=200)
    test = AcceptanceTest(1e-5)
    for seed in range(30):
        completion = block_verified(p, q, longer, Seeded(seed))
        assert completion.rounds is not None
        test.update(Trials.of(completion.rounds, beta[[0, *completion.tokens[:-1]]]))
    assert not test.rejects("more", "first")
    assert test.rejects("more", "later")
    assert test.ratio("first")[0] < 1 < test.ratio("later")[0]
