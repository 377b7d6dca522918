"""The e-process: what slack, labels and saved states do to it, and what makes no sense."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from strategies import examples, observations
from torch import Tensor
from wealth import BARE, DRAFT, FLAT, HALF, NAN, ONLY_BEST, binary, border, cut, process, simulated

from harness.stats.eprocess import LEAD, TILT, Decision, EProcess
from harness.stats.experts import NAMED, Expert, log_ratios
from harness.stats.rows import Rows

# --- slack ----------------------------------------------------------------------------------------


def own(rows: Rows, off: float | Tensor) -> Rows:
    """The decoder's own log probabilities are the oracle's, and ``off`` more."""
    return replace(rows, own_logprobs=rows.here.log_p.squeeze(1) + off)


def test_log_probabilities_that_are_the_oracles_change_nothing() -> None:
    rows = simulated(40)
    plain, believed = process(*NAMED), process(*NAMED)
    plain.update(rows)
    believed.update(own(rows, 0.0), slack=0.3)
    assert believed.log_wealths.tolist() == plain.log_wealths.tolist()


def test_up_to_the_slack_they_are_believed() -> None:
    """The ratio is then against them exactly."""
    rows = simulated(40)
    off = 0.3 * torch.linspace(-1, 1, 40, dtype=torch.float64)
    bets = process(*NAMED)
    ratios = bets.update(own(rows, off), slack=0.3)
    logs = torch.cat([e.law(rows.here) for e in NAMED], 1).log()
    expected = (logs - (rows.here.log_p + off.unsqueeze(1))).sum(0)
    torch.testing.assert_close(bets.log_wealths, expected)
    torch.testing.assert_close(ratios, log_ratios(NAMED, rows.here))  # before slack
    # Without slack they are not looked at.
    bare, plain = process(*NAMED), process(*NAMED)
    bare.update(own(rows, off))
    plain.update(rows)
    assert bare.log_wealths.tolist() == plain.log_wealths.tolist()


@pytest.mark.parametrize("off", [5.0, -5.0, math.inf, -math.inf])
def test_beyond_the_slack_they_are_believed_no_further(off: float) -> None:
    rows = simulated(40)
    bets, plain = process(*NAMED), process(*NAMED)
    bets.update(own(rows, off), slack=0.3)
    plain.update(rows)
    expected = plain.log_wealths - math.copysign(0.3, off) * 40
    torch.testing.assert_close(bets.log_wealths, expected)


def test_a_constant_lie_hides_nothing() -> None:
    rows = replace(simulated(200), own_logprobs=torch.zeros(200, dtype=torch.float64))
    bets, plain = process(*NAMED, alpha=1e-6), process(*NAMED, alpha=1e-6)
    bets.update(rows, slack=1e-6)
    plain.update(rows)
    assert plain.decision().rejected
    assert bets.decision().rejected
    assert bets.log_wealth == pytest.approx(plain.log_wealth, abs=2.1e-4)


def test_where_none_are_given_the_oracle_is_believed() -> None:
    """Of an answer without log probabilities they are NaN; of an impossible token, -inf."""
    rows = simulated(40)
    bets, plain = process(*NAMED), process(*NAMED)
    bets.update(own(rows, NAN), slack=0.3)
    plain.update(rows)
    assert bets.log_wealths.tolist() == plain.log_wealths.tolist()
    impossible = process(*BARE)
    impossible.update(replace(border([1, 0]), own_logprobs=torch.tensor([-0.7, 0.0])), slack=0.3)
    assert impossible.impossible == 1
    assert not impossible.log_wealths.isnan().any()


def test_what_is_handed_back_is_subtracted_expert_by_expert() -> None:
    bets = process(HALF, DRAFT, alpha=0.1)
    bets.update(binary([1, 1, 1]))  # 8 and 27
    assert bets.decision().rejected
    decision = bets.decision(torch.tensor([math.log(4), math.log(27)]))  # 2 and 1
    assert math.exp(decision.log_wealth) == pytest.approx(1.5)
    assert (decision.rejected, decision.expert) == (False, HALF)
    assert math.exp(decision.lead) == pytest.approx(2)
    # What the plain arm loses is not given to the other.
    lost = bets.decision(torch.tensor([-5.0, -5.0]))
    assert math.exp(lost.log_wealth) == pytest.approx((8 + 27) / 2)
    assert bets.decision().log_wealth == pytest.approx(math.log(35 / 2))


# --- where ----------------------------------------------------------------------------------------


def test_groups_by_hand() -> None:
    """By label: tokens, and what the leading expert made of them; -1 is no label."""
    place = torch.tensor([0, 0, 1, -1])
    bets = process(HALF, DRAFT)
    bets.update(binary([1, 1, 0, 1], groups={"place": place, "task": torch.tensor([4] * 4)}))
    bets.update(binary([1, 0], groups={"place": torch.tensor([2, 0])}))
    three, half = math.log(3), -math.log(2)  # of the draft: 3 for token 1, 1/2 for token 0
    found = bets.where()
    assert bets.decision().expert is DRAFT
    assert found.keys() == {"place", "task"}
    assert found["place"] == {
        0: (3, pytest.approx(2 * three + half)),
        1: (1, pytest.approx(half)),
        2: (1, pytest.approx(three)),
    }
    assert list(found["place"]) == [0, 1, 2]
    assert found["task"] == {4: (4, pytest.approx(3 * three + half))}


def test_groups_add_up() -> None:
    rows = replace(simulated(90), groups={"a": torch.arange(90) % 4, "b": torch.arange(90) // 50})
    bets = process(*NAMED, tilt=True)
    bets.update(rows)
    best = float(bets.log_wealths.max())
    for labels in bets.where().values():
        assert sum(tokens for tokens, _ in labels.values()) == 90
        assert sum(wealth for _, wealth in labels.values()) == pytest.approx(best)


# --- saved and continued --------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [NAMED, [ONLY_BEST, DRAFT]], ids=["named", "ruled out"])
def test_it_continues_from_a_saved_state(experts: Sequence[Expert]) -> None:
    """In JSON, which has no infinity: some experts are ruled out."""
    rows = replace(simulated(120), groups={"place": torch.arange(120) % 3 - 1})
    batches = [cut(rows, i, i + 15) for i in range(0, 120, 15)]
    batches[3] = cut(replace(rows, near=torch.arange(120) % 2 == 0), 45, 60)
    whole = EProcess(experts, q=True, alpha=1e-3)
    saved = whole.state()
    for batch in batches:
        parts = EProcess(experts, q=True, alpha=1e-3)
        parts.resume(json.loads(json.dumps(saved), parse_constant=pytest.fail))
        assert parts.update(batch).tolist() == whole.update(batch).tolist()
        assert parts.decision() == whole.decision()
        assert parts.where() == whole.where()
        saved = parts.state()
    assert saved == whole.state()
    assert whole.log_wealths.min() == -math.inf
    assert whole.crossed_at is not None


@examples(25)
@given(rows=observations())
def test_any_state_is_json(rows: Rows) -> None:
    whole, again = process(*NAMED, tilt=True), process(*NAMED, tilt=True)
    whole.update(replace(rows, groups={"row": torch.arange(len(rows))}))
    again.resume(json.loads(json.dumps(whole.state()), parse_constant=pytest.fail))
    assert again.state() == whole.state()
    assert again.log_wealths.tolist() == whole.log_wealths.tolist()
    assert again.decision() == whole.decision()


def test_a_state_of_other_experts_is_refused() -> None:
    state = process(HALF, DRAFT).state()
    for other in (
        process(DRAFT, HALF),
        process(HALF),
        process(HALF, DRAFT, tilt=True),
        process(HALF, FLAT),
    ):
        with pytest.raises(ValueError, match="a saved state of other experts"):
            other.resume(state)
    with_q, without = process(FLAT, tilt=True), process(FLAT, tilt=True, q=False)
    with pytest.raises(ValueError, match="features"):
        without.resume(with_q.state())


# --- what makes no sense --------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5, 2.0, NAN, math.inf])
def test_a_bad_level_is_named(alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha is {alpha}"):
        process(HALF, alpha=alpha)


def test_no_experts_are_refused() -> None:
    for experts in ([], [HALF, DRAFT]):
        with pytest.raises(ValueError, match="an e-process of no experts"):
            process(*experts, q=False)
    assert process(q=False, tilt=True).experts == (TILT,)


def test_the_fault_may_be_named_when_no_other_family_is_near() -> None:
    def decision(lead: float) -> Decision:
        return Decision(True, 9.0, 5, 5, 0, HALF, 9.0, lead)

    assert decision(LEAD).settled
    assert decision(math.inf).settled
    assert not decision(LEAD - 1e-6).settled
    assert not decision(-1.0).settled
    # 3/2 a token between the draft and the one that follows it half of the time.
    bets = process(HALF, DRAFT)
    needed = math.ceil(math.log(20) / math.log(1.5))
    bets.update(binary([1] * (needed - 1)))
    assert not bets.decision().settled
    bets.update(binary([1]))
    assert bets.decision().settled
