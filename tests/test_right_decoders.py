"""Decoders that are right pass the suites: the reference on every path, the controls, transformers.

The reference itself passes in a stage of its own (``ci/test``).
"""

from __future__ import annotations

import dataclasses

import pytest

from harness import items, matrix
from harness.adapters import load_decoder
from harness.checks import distribution
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.matrix import Row
from harness.models import load_pair
from harness.verdict import Status
from reference_impl.controls import CONTROLS

SMOKE = items.items("smoke")
RIGHT = ["reference-ngram", *(f"{matrix.CONTROLS}:{name}" for name in CONTROLS)]
SLOW = ["reference-page", "transformers-assisted", "transformers-lookup"]
KNOWN = {  # of others' decoders
    # drafts beyond the last position of a table of position embeddings
    ("transformers-lookup", "stopping.context[tiny-gpt2]"),
}


def alarms(decoder: str, found: list[items.Item]) -> list[str]:
    cells = matrix.run(Row(decoder, [str(item) for item in found]))
    assert sum(cell.status is Status.PASS for cell in cells) > len(cells) / 2
    return [
        f"{cell.item} {cell.status.value}: {cell.message}"
        for cell in cells
        if cell.status not in (Status.PASS, Status.UNSUPPORTED)
        and (decoder, cell.item) not in KNOWN
    ]


@pytest.mark.parametrize("decoder", RIGHT)
def test_every_item_passes(decoder: str) -> None:
    assert alarms(decoder, SMOKE) == []


@pytest.mark.parametrize("decoder", SLOW)
def test_slow_ones_pass_what_needs_no_samples(decoder: str) -> None:
    assert alarms(decoder, [item for item in SMOKE if not item.statistical]) == []


@pytest.mark.parametrize("decoder", SLOW)
def test_slow_ones_follow_the_target(decoder: str) -> None:
    """One generation at a time: few samples, on the pair where few show the most."""
    pair = load_pair("micro-bad")
    budget = dataclasses.replace(PROFILES["smoke"], samples=700)
    subject = Subject(load_decoder(decoder, pair), pair, decoder)
    verdict = distribution.family(subject, budget, "T=1", 4)
    assert verdict.status is Status.PASS, str(verdict)
