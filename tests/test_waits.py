"""How often a round waits for the device: once, for the tokens that it commits.

On a CPU nothing waits, but the same calls are made: everything that would bring a value of a tensor
to the host is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from harness.adapters import load_decoder
from harness.contract import Request, Sampling
from harness.models import load_pair

TO_HOST = ("cpu", "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "nonzero")


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Calls that read from the device, by name."""
    calls: list[str] = []

    def counting(name: str, original: Any) -> Any:
        def call(self: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            calls.append(name)
            return original(self, *arguments, **named)

        return call

    with patch.context() as patched:
        for name in TO_HOST:
            patched.setattr(torch.Tensor, name, counting(name, getattr(torch.Tensor, name)))
        yield calls


CHAINS = ("reference", "reference-ngram", "reference-suffix", "reference-cascade")
CHAINS += ("reference-early-exit", "reference-block", "reference-matching", "reference-typical")
CHAINS += ("reference-medusa", "reference-eagle", "reference-eagle-cascade")
TREES = ("reference-tree", "reference-medusa-tree", "reference-eagle-tree")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", [*CHAINS, *TREES])
def test_a_round_waits_once(name: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = load_pair("tiny")
    sampling = Sampling(temperature=temperature)
    prompts = [(1, 2, 3, 1, 2), (4, 5, 6)]
    requests = [
        Request(prompt=p, max_new_tokens=24, sampling=sampling, seed=7, draft_tokens=3)
        for p in prompts
    ]
    rounds = load_decoder(name, pair).engine.rounds(requests)
    next(rounds)
    for _ in range(3):
        with counted(monkeypatch) as calls:
            next(rounds)
        assert calls == ["cpu"]
