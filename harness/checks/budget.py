"""How much a profile spends, and the error level it works at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Sizes of one profile.

    Attributes
    ----------
    draft_tokens : tuple of int
        Values of K to sweep.
    prompts : int
        Prompts per setting of the deterministic checks.
    new_tokens : int
        Length of their outputs.
    samples : int
        Most generations that one statistical test may ask for.
    tables : int
        Tables whose exact law is enumerated.
    large_tokens : int
        Most tokens of each arm that an e-process may look at on a target of more than ``LARGE``
        parameters.
    examples : int
        Calls that a property is tried on.
    seed : int
    alpha : float
        Error level of one statistical test: the run's, shared among its tests.
    """

    draft_tokens: tuple[int, ...]
    prompts: int
    new_tokens: int
    samples: int
    tables: int
    large_tokens: int = 512
    examples: int = 30
    seed: int = 20261129
    alpha: float = 1e-5


PROFILES: Mapping[str, Budget] = {
    "smoke": Budget(
        draft_tokens=(1, 4),
        prompts=1,
        new_tokens=16,
        samples=8_000,
        tables=60,
        examples=30,
    ),
    "ci": Budget(
        draft_tokens=(1, 2, 3, 4, 6, 8),
        prompts=2,
        new_tokens=32,
        samples=20_000,
        tables=200,
        examples=50,
    ),
    "nightly": Budget(
        draft_tokens=(1, 2, 3, 4, 5, 6, 7, 8),
        prompts=6,
        new_tokens=64,
        samples=1_000_000,
        tables=2_000,
        examples=2_000,
        large_tokens=50_000,
    ),
}
LARGE = 10_000_000
ALPHA = 1e-4  # of a whole run
