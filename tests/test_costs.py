"""Where the time goes, and what acceptance and the costs of model calls could give."""

from __future__ import annotations

from typing import Any

import pytest

from harness.adapters import load_decoder
from harness.bench.costs import costs
from harness.bench.measure import Settings, measure, schedule
from harness.bench.workload import Prompt
from harness.models import load_pair
from harness.record import PARTS, GenerationRow
from tests.timed_rows import row


def timed(**changes: Any) -> GenerationRow:
    """Plain: 4 calls of 0.4 s after a prompt of 0.2 s. Speculative: 2 rounds, 3 drafts each."""
    given: dict[str, Any] = {
        "plain_seconds": 2.0,
        "seconds": 1.5,
        "plain_parts": {"prompt": 0.2, "verify": 1.6},
        "parts": {"prompt": 0.2, "draft": 0.24, "verify": 0.96},
        "drafted": [3, 3],
        "accepted": [2, 0],
    }
    return row(**given | changes)


def test_costs_are_in_target_calls_over_one_token() -> None:
    (found,) = costs([timed(), timed(prompt="p2")], ["a"])
    assert found.draft == pytest.approx(0.24 / 6 / 0.4)
    assert found.verify == pytest.approx(0.96 / 2 / 0.4)
    assert (found.drafted, found.length) == (3, 2)
    assert found.ideal.value == pytest.approx(1.8 / 1.4)
    assert found.share.value == pytest.approx((2.0 / 1.5) / (1.8 / 1.4))
    assert found.parts == pytest.approx(
        {"prompt": 0.2 / 1.5, "draft": 0.16, "verify": 0.64, "other": 0.1 / 1.5}
    )


def test_without_overhead_the_ideal_is_reached() -> None:
    (found,) = costs([timed(plain_seconds=1.8, seconds=1.4)], ["a"])
    assert found.share.value == pytest.approx(1)
    assert found.parts["other"] == pytest.approx(0)


def test_outputs_of_other_lengths_compare_by_token() -> None:
    shorter = timed(tokens=(1, 2), seconds=0.75, parts={k: v / 2 for k, v in timed().parts.items()})
    one, other = costs([timed()], ["a"]), costs([shorter], ["a"])
    assert other[0].ideal.value == pytest.approx(one[0].ideal.value)


@pytest.mark.parametrize(
    "silent", [{"parts": {}}, {"plain_parts": {}}, {"drafted": None}, {"drafted": [0, 0, 0, 0]}]
)
def test_who_does_not_tell_is_left_out(silent: dict[str, Any]) -> None:
    assert costs([timed(**silent)], ["a"]) == []


def test_tasks_come_one_by_one_and_then_together() -> None:
    rows = [timed(), timed(task="code"), timed(task="code", decoder="b")]
    found = [(of.task, of.decoder) for of in costs(rows, ["a", "b"])]
    assert found == [("chat", "a"), ("code", "a"), ("code", "b"), ("all", "a"), ("all", "b")]


@pytest.mark.parametrize("name", ["reference", "reference-ngram", "reference-eagle-tree"])
def test_the_reference_tells_where_its_time_goes(name: str) -> None:
    pair = load_pair("tiny-self")
    settings = Settings(max_new_tokens=12, draft_tokens=3, vocab_size=pair.vocab_size)
    trials = schedule([name], [Prompt("chat", "chat-1", (1, 2, 3, 1, 2))], 1, 0)
    decoders = {name: load_decoder(name, pair)}
    (found,) = measure(decoders, trials, settings, lambda *_: ("", {}))
    assert set(found.parts) == set(PARTS)
    assert 0 < sum(found.parts.values()) < found.seconds
    assert 0 < sum(found.plain_parts.values()) < found.plain_seconds
