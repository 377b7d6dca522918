"""The reference with its speculative arm changed, and decoders that cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.adapters import load_decoder
from harness.contract import Completion, Decoder, Request
from harness.models import ModelPair


class Changed:
    """The reference, whose speculative arm goes through ``change``."""

    def __init__(self, pair: ModelPair, change: Any, lacking: str = "") -> None:
        self.reference = load_decoder("reference", pair)
        self.change = change
        self.capabilities = self.reference.capabilities - {lacking}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        completions = self.reference.generate(requests)
        return self.change(completions) if requests[0].speculate else completions


def wrong(pair: ModelPair) -> Decoder:
    """Its last token is another one."""

    def change(completions: list[Completion]) -> list[Completion]:
        completions[0].tokens[-1] = (completions[0].tokens[-1] + 7) % 64
        return completions

    return Changed(pair, change)


def crashing(pair: ModelPair) -> Decoder:
    """It raises as soon as it is to speculate."""

    def change(completions: list[Completion]) -> list[Completion]:
        raise RuntimeError("no more memory")

    return Changed(pair, change)


def interrupted(pair: ModelPair) -> Decoder:
    """Ctrl-C arrives in its third speculative generation, the first being a warm-up."""
    calls = iter(range(100))

    def change(completions: list[Completion]) -> list[Completion]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return completions

    return Changed(pair, change)


def without_plain(pair: ModelPair) -> Decoder:
    """It cannot run with speculation off."""
    return Changed(pair, None, lacking="plain")


def unbuildable(pair: ModelPair) -> Decoder:
    """Its factory raises something of its own."""
    raise RuntimeError("no licence\nfound")
