"""Exact pairs, and what plain decoding makes of a request."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from harness.contract import Request, Sampling
from harness.models import ModelPair, load_pair
from reference_impl import autoregressive
from reference_impl.engine import SpeculativeEngine
from reference_impl.randomness import Seeded

HOT = Sampling(temperature=1.3)
# Texts of one token, of which no state is known at first, beside one that does not draft.
ONE_TOKEN: dict[str, list[Request]] = {
    "does not speculate": [
        Request(prompt=(1,), max_new_tokens=12, draft_tokens=3),
        Request(prompt=(1, 2, 3, 4, 5, 6), max_new_tokens=12, draft_tokens=3, speculate=False),
    ],
    "ends at once": [
        Request(prompt=(1,), max_new_tokens=12, draft_tokens=3),
        Request(prompt=(2,), max_new_tokens=12, draft_tokens=3),
        Request(prompt=(1, 2, 3, 4, 5, 6), max_new_tokens=1, draft_tokens=3),
    ],
}

_load = functools.cache(load_pair)


def exact(name: str) -> ModelPair:
    """A pair in float64: rounding is far below any difference that decides a token."""
    return _load(name, dtype="float64")


def plain(pair: ModelPair, request: Request) -> list[int]:
    """Tokens of plain decoding, without a cache."""
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    return autoregressive.decode(laws, request, Seeded(request.seed)).tokens


def assert_alone_as_together(engine: SpeculativeEngine, rows: Sequence[Request]) -> None:
    """Seeded requests get the same ids in one call and one by one."""
    together = [answer.tokens for answer in engine.generate(rows)]
    assert together == [engine.generate([row])[0].tokens for row in rows]


def assert_plain(engine: SpeculativeEngine, pair: ModelPair, rows: Sequence[Request]) -> None:
    """Greedy ids of an engine are those of plain decoding, together and one by one."""
    expected = [plain(pair, row) for row in rows]
    assert [answer.tokens for answer in engine.generate(rows)] == expected
    for row, tokens in zip(rows, expected, strict=True):
        [alone] = engine.generate([row])
        assert alone.tokens == tokens
        assert all(entry.accepted <= entry.drafted <= row.draft_tokens for entry in alone.rounds)
