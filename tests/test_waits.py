"""How often a round waits for the device: once, for the tokens that it commits.

On a CPU nothing waits, but the same calls are made. Counted is everything that would bring a value
of a tensor to the host, and every copy to the device that waits until it has arrived.
"""

from __future__ import annotations

import sys
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

    def made(original: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if "device" in named:  # from the host, and there is no way to say non_blocking
                calls.append("tensor")
            return original(*arguments, **named)

        return call

    def moved(self: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        # transformers' own are of what is there already.
        ours = sys._getframe(1).f_globals["__name__"].startswith("reference_impl")
        to = [x for x in (*arguments, *named.values()) if isinstance(x, torch.device | str)]
        if ours and to and not named.get("non_blocking"):
            calls.append("to")
        return to_(self, *arguments, **named)

    to_ = torch.Tensor.to
    with patch.context() as patched:
        patched.setattr(torch.Tensor, "to", moved)
        for name in ("tensor", "as_tensor"):
            patched.setattr(torch, name, made(getattr(torch, name)))
        for name in TO_HOST:
            patched.setattr(torch.Tensor, name, counting(name, getattr(torch.Tensor, name)))
        yield calls


CHAINS = ("reference", "reference-ngram", "reference-suffix", "reference-cascade")
CHAINS += ("reference-early-exit", "reference-block", "reference-matching", "reference-typical")
CHAINS += ("reference-medusa", "reference-eagle", "reference-eagle-cascade")
TREES = ("reference-tree", "reference-medusa-tree", "reference-eagle-tree")


REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"sampling": Sampling(temperature=1.0)},
    "all parameters": {
        "sampling": Sampling(
            temperature=0.8,
            top_k=9,
            top_p=0.9,
            min_p=0.01,
            repetition_penalty=1.2,
            logit_bias={1: 1.0},
            min_new_tokens=20,  # no row ends, upon which the others would be moved
        ),
        "eos": (1,),
        "logprobs": True,
    },
}


def waits(
    name: str, parameters: dict[str, Any], patch: pytest.MonkeyPatch, **options: str
) -> list[list[str]]:
    """What waited in the second, third and fourth round."""
    requests = [
        Request(prompt=prompt, max_new_tokens=24, seed=7, draft_tokens=3, **parameters)
        for prompt in [(1, 2, 3, 1, 2), (4, 5, 6)]
    ]
    rounds, found = load_decoder(name, load_pair("tiny"), options).engine.rounds(requests), []
    next(rounds)
    for _ in range(3):
        with counted(patch) as calls:
            next(rounds)
        found.append(calls)
    return found


@pytest.mark.parametrize("parameters", REQUESTS)
@pytest.mark.parametrize("name", [*CHAINS, *TREES])
def test_a_round_waits_once(name: str, parameters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(name, REQUESTS[parameters], monkeypatch) == [["cpu"]] * 3


def test_a_draft_that_may_stop_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether to go on is decided on the host, draft by draft."""
    for calls in waits("reference", REQUESTS["sampled"], monkeypatch, stop_below="0.0001"):
        assert calls == ["cpu"] * (3 + 1)
