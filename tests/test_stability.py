"""Unsteady runs are told, with what to do; steady ones are not."""

from __future__ import annotations

import numpy as np

from harness.bench.columns import columns
from harness.bench.stability import order_p_value, repeat_spread, unsteady
from harness.record import GenerationRow
from tests.timed_rows import row


def rows(
    order: float = 1.0, noise: float = 0.02, prompts: int = 20, repeats: int = 1, slow: float = 1.0
) -> list[GenerationRow]:
    """A speedup of 2, times ``order`` where the plain arm goes first.

    ``slow`` slows both arms down in every other repeat.
    """
    generator = np.random.default_rng(1)
    made = []
    for number in range(prompts):
        for repeat in range(repeats):
            first = ("plain", "speculative")[(number + repeat) % 2]
            factor = slow if repeat % 2 else 1.0
            ratio = 2.0 * (order if first == "plain" else 1.0)
            ratio *= float(np.exp(generator.normal(0, noise)))
            found = row(
                prompt=f"p{number}",
                plain_seconds=2.0 * factor,
                seconds=2.0 * factor / ratio,
                repeat=repeat,
            )
            made.append(_led(found, first))
    return made


def _led(found: GenerationRow, first: str) -> GenerationRow:
    import msgspec

    return msgspec.structs.replace(found, first=first)


def test_a_steady_run_is_not_doubted() -> None:
    assert unsteady(rows(), ["a"]) == []
    assert unsteady(rows(repeats=2), ["a"]) == []


def test_a_ratio_that_depends_on_the_order_is_told_with_what_to_do() -> None:
    (found,) = unsteady(rows(order=1.3), ["a"])
    assert "a: the speedup depends on which arm went first, 2.6" in found
    assert "alpha 0.01" in found
    assert "close other programs, or use --profile full" in found


def test_decoders_share_the_level() -> None:
    (found,) = unsteady(rows(order=1.3), ["a", "b"])
    assert "alpha 0.005" in found


def test_few_rows_say_nothing_of_the_order() -> None:
    assert order_p_value(columns(rows(order=3.0, prompts=8)).table) == 1.0
    assert unsteady([], ["a"]) == []


def test_repeats_that_differ_more_than_the_interval_allows_are_told() -> None:
    (found,) = unsteady(rows(repeats=2, slow=1.5), ["a"])
    assert "plain decoding of one prompt takes times that differ by 33%" in found
    assert "close other programs" in found


def test_spread_between_repeats_by_hand() -> None:
    assert repeat_spread(columns(rows()).table) is None
    spread = repeat_spread(columns(rows(repeats=2, slow=float(np.e))).table)
    assert spread is not None
    np.testing.assert_allclose(spread, 0.5**0.5)  # of two values that are 1 apart
