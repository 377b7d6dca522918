"""Padding columns: who says one, in which arm, and who cannot have such a pair."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from harness.adapters import load_decoder
from harness.adapters.reference import engine
from harness.checks import vocabulary
from harness.checks.budget import PROFILES
from harness.checks.subject import Subject
from harness.contract import Completion, Request
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status, Verdict

BUDGET = PROFILES["smoke"]


class Padded:
    """Says a padding column for its last token."""

    def __init__(self, pair: ModelPair, plainly: bool, declared: bool = True) -> None:
        self.right, self.column, self.plainly = engine(pair), pair.vocab_size, plainly
        self.capabilities = self.right.capabilities - (set() if declared else {"plain"})

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [
            msgspec.structs.replace(c, tokens=[*c.tokens[:-1], self.column])
            if self.plainly or r.speculate
            else c
            for r, c in zip(requests, self.right.generate(requests), strict=True)
        ]


def verdict_on(**how: bool) -> Verdict:
    pair = load_pair("tiny-padded")
    return vocabulary.padding(Subject(Padded(pair, **how), pair, "no:name"), BUDGET)


def test_a_padding_column_that_is_said_fails() -> None:
    for verdict in (verdict_on(plainly=False), verdict_on(plainly=True, declared=False)):
        assert verdict.status is Status.FAIL, str(verdict)
        assert verdict.fault_class is FaultClass.VOCABULARY
        assert "token 64 is outside the vocabulary" in verdict.message


def test_where_plain_decoding_says_it_too_speculation_is_not_to_blame() -> None:
    verdict = verdict_on(plainly=True)
    assert (verdict.status, "not to blame" in verdict.message) == (Status.ERROR, True)


@pytest.mark.parametrize(
    ("name", "pair", "status"),
    [
        ("reference", "tiny-padded", Status.PASS),
        ("transformers-lookup", "tiny-padded", Status.PASS),
        ("transformers-assisted", "tiny-padded", Status.UNSUPPORTED),  # it wants equal widths
        ("reference", "tiny", Status.UNSUPPORTED),
    ],
)
def test_right_decoders(name: str, pair: str, status: Status) -> None:
    loaded = load_pair(pair)
    verdict = vocabulary.padding(Subject(load_decoder(name, loaded), loaded, name), BUDGET)
    assert verdict.status is status, str(verdict)
