"""Shards of an e-process: the whole exactly where bets are fixed, an e-value where one learns."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from wealth import BARE, DRAFT, FLAT, HALF, ONLY_BEST, P, binary, border, cut, process, simulated

from harness.stats.certificate import LEAK, Certificate
from harness.stats.eprocess import EProcess
from harness.stats.eprocess_merge import merge, merge_certificates, merge_pairs
from harness.stats.experts import NAMED, Expert
from harness.stats.paired_bets import PairedBets
from harness.stats.rows import Rows


def state_of(rows: Rows, experts: Sequence[Expert], *, tilt: bool = False) -> dict[str, object]:
    shard = process(*experts, tilt=tilt)
    shard.update(rows)
    found: dict[str, object] = json.loads(json.dumps(shard.state(), allow_nan=False))
    return found


def merged(parts: Sequence[Rows], experts: Sequence[Expert], *, tilt: bool = False) -> EProcess:
    whole = process(*experts, tilt=tilt)
    states = [state_of(part, experts, tilt=tilt) for part in parts]
    merge(whole, {str(number): state for number, state in enumerate(states)})
    return whole


@examples(20)
@given(
    cuts=st.lists(st.integers(1, 119), min_size=1, max_size=4, unique=True).map(sorted),
    order=st.randoms(),
)
def test_of_fixed_bets_it_is_the_wealth_of_one_process(cuts: list[int], order: object) -> None:
    """Whatever the shards, and in whatever order they are merged."""
    rows = replace(simulated(120), groups={"place": torch.arange(120) % 3})
    ends = [0, *cuts, 120]
    parts = [cut(rows, a, b) for a, b in itertools.pairwise(ends)]
    order.shuffle(parts)  # type: ignore[attr-defined]
    one, many = process(*NAMED), merged(parts, NAMED)
    one.update(rows)
    torch.testing.assert_close(many.log_wealths, one.log_wealths, rtol=1e-12, atol=1e-12)
    assert many.log_wealth == pytest.approx(one.log_wealth, rel=1e-12)
    assert many.decision().expert is one.decision().expert
    assert (many.tokens, many.impossible) == (one.tokens, one.impossible)
    for label, (tokens, wealth) in one.where()["place"].items():
        assert many.where()["place"][label] == (tokens, pytest.approx(wealth))


def test_by_hand() -> None:
    """3 for token 1, 1/2 for token 0, in whatever shard."""
    tokens = [1, 0, 1, 1]
    one, many = process(DRAFT), merged([binary(tokens[:2]), binary(tokens[2:])], [DRAFT])
    one.update(binary(tokens))
    assert many.log_wealths.tolist() == pytest.approx(one.log_wealths.tolist(), abs=1e-15)
    assert math.exp(many.log_wealth) == pytest.approx(27 / 2)


def test_weights_are_paid_once() -> None:
    """(8 + 27) / 2 by hand; the product of the shards' means is another number."""
    many = merged([binary([1]), binary([1, 1])], [HALF, DRAFT])
    assert math.exp(many.log_wealth) == pytest.approx((8 + 27) / 2)
    shards = [merged([binary(tokens)], [HALF, DRAFT]) for tokens in ([1], [1, 1])]
    assert math.prod(math.exp(s.log_wealth) for s in shards) == pytest.approx(2.5 * (4 + 9) / 2)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (4, 2), (1, 5)])
def test_with_a_learned_tilt_the_mean_over_every_outcome_is_one(sizes: tuple[int, ...]) -> None:
    """Exactly: all outcomes of six tokens, each with its weight. So it is an e-value."""
    mean, differs = 0.0, False
    for outcome in itertools.product((0, 1), repeat=sum(sizes)):
        ends = [0, *itertools.accumulate(sizes)]
        parts = [binary(outcome[a:b]) for a, b in itertools.pairwise(ends)]
        many = merged(parts, [HALF, FLAT], tilt=True)
        mean += math.prod(P[token] for token in outcome) * math.exp(many.log_wealth)
        one = process(HALF, FLAT, tilt=True)
        one.update(binary(outcome))
        differs |= abs(one.log_wealth - many.log_wealth) > 1e-6
    assert mean == pytest.approx(1.0, abs=1e-9)
    assert differs  # from one process, which learns from all that was before


def test_so_it_is_by_simulation_on_longer_shards() -> None:
    """Shards that each stop when they like; the mean of 2000 runs, six standard errors wide."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for _ in range(2000):
        parts = []
        for _ in range(2):
            drawn = torch.multinomial(torch.tensor(P), 6, replacement=True, generator=generator)
            tokens = drawn.tolist()
            parts.append(binary(tokens[: tokens.index(1) + 1] if 1 in tokens else tokens))
        found.append(math.exp(merged(parts, [FLAT], tilt=True).log_wealth))
    values = torch.tensor(found, dtype=torch.float64)
    error = float(values.std()) / math.sqrt(len(values))
    assert float(values.mean()) <= 1 + 6 * error
    assert sum(value >= 100 for value in found) <= 60  # 20 are allowed on average, by Ville


def test_it_looks_after_each_shard_in_their_order() -> None:
    """The first one's path counts as it was; later ones' only with what was there before."""
    up, down = [1] * 6, [0] * 6  # of the draft: 3 ** 6, 2 ** -6
    first = merged([binary([*up, *down]), binary(down)], [DRAFT])
    assert first.decision().log_wealth == pytest.approx(6 * math.log(3))
    assert first.crossed_at == 5  # 3 ** 5 > 100
    later = merged([binary(down), binary([*up, *down]), binary(up)], [DRAFT])
    assert later.decision().log_wealth < 6 * math.log(3)
    together = merged([binary([1] * 4), binary([1] * 4)], [DRAFT])
    assert together.crossed_at == 8


def test_what_is_impossible_is_impossible_in_all() -> None:
    many = merged([border([0, 0]), border([0, 1])], BARE)
    assert many.impossible == 1
    assert many.decision().rejected
    ruled_out = merged([binary([1]), binary([0])], [ONLY_BEST, DRAFT])
    assert ruled_out.log_wealths[0] == -math.inf


def test_it_goes_on_from_there() -> None:
    many = merged([simulated(30, 1), simulated(60, 2)], NAMED, tilt=True)
    before = many.tokens
    many.update(simulated(30, 3))
    assert many.tokens == before + 30


def test_what_makes_no_sense_is_refused() -> None:
    state = state_of(binary([1]), [HALF])
    with pytest.raises(ValueError, match="no shards"):
        merge(process(HALF), {})
    with pytest.raises(ValueError, match="shard b is of other experts"):
        merge(process(HALF), {"a": state, "b": state_of(binary([1]), [DRAFT])})
    begun = process(HALF)
    begun.update(binary([1]))
    with pytest.raises(ValueError, match="of 1 tokens"):
        merge(begun, {"a": state})


def test_comparisons_of_two_arms_merge_exactly() -> None:
    """Signs are counted, and sums add: the order of the pairs is nothing."""
    differences = torch.randn(60, 3, generator=torch.Generator().manual_seed(3)).double().numpy()
    whole, parts = PairedBets(3), []
    whole.update(differences)
    for part in (differences[:25], differences[25:30], differences[30:]):
        bets = PairedBets(3)
        bets.update(part)
        parts.append(json.loads(json.dumps(bets.state())))
    found = merge_pairs(parts)
    assert found.log_wealth == pytest.approx(whole.log_wealth, rel=1e-12)
    assert found.pairs == 60
    assert found.peak <= whole.peak + 1e-12  # it looks less often


def test_certificates_merge() -> None:
    rows = simulated(200)
    whole = Certificate(LEAK, 1e-3)
    states = []
    for first in (0, 80):
        part = cut(rows, first, 80 if first == 0 else 200)
        whole.update(part)
        shard = Certificate(LEAK, 1e-3)
        shard.update(part)
        states.append(json.loads(json.dumps(shard.state())))
    found = Certificate(LEAK, 1e-3)
    merge_certificates(found, states)
    torch.testing.assert_close(found.log_wealths, whole.log_wealths)
    assert found.upper == whole.upper
