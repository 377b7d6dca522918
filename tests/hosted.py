"""Decoders as a child on stdio runs them, from files alone: a right one, and troublesome ones."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contract import Completion, Request
from harness.pair_files import PairFiles, UnsupportedPairError

if TYPE_CHECKING:
    from harness.adapters.reference import EngineDecoder


def engine(files: PairFiles, max_batch: int | None = None) -> EngineDecoder:
    """The reference engine."""
    from transformers import AutoModelForCausalLM

    from harness.adapters import reference
    from harness.models import ModelPair

    target, draft = (
        AutoModelForCausalLM.from_pretrained(path["hf"]).eval()
        for path in (files.target, files.draft)
    )
    pair = ModelPair(files.name, target, draft, files.vocab_size, files.context_length, files.eos)
    return reference.engine(pair, max_batch)


class Troublesome:
    """Answers 7s; the first token of a prompt says what else happens."""

    capabilities = frozenset({"greedy", "logprobs", "stream"})
    versions = {"troublesome": "1.0"}  # noqa: RUF012 (a class of a library would have it so)

    def __init__(self, closed: str = "") -> None:
        self._closed = closed

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One answer a request, mostly."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        tokens: list[Any] = [7] * request.max_new_tokens
        completion = Completion(tokens=tokens, finish_reason="length")
        match request.prompt[0]:
            case 1:
                print("loading a page")
                os.write(1, b"from C\n")
                subprocess.run(["echo", "from a process"], check=True)
            case 2:
                raise ValueError("no such id")
            case 3:
                raise UnicodeError("no such text")
            case 4:
                raise KeyError("weights")
            case 5:
                tokens[-1] = object()
            case 6:
                completion.logprobs = [-math.inf] * len(tokens)
            case 7:
                completion.logprobs = [math.nan] * len(tokens)
            case 8:  # what it starts finds nothing on stdin, least of all the next request
                read = subprocess.run(["cat"], capture_output=True, check=True).stdout
                tokens[-1] = len(read)
        return completion

    def stream(self, request: Request) -> Iterator[list[int]]:
        """A token a piece; the last one is trouble where the prompt is 4."""
        for number in range(request.max_new_tokens):
            if request.prompt[0] == 4 and number == 2:
                raise KeyError("weights")
            yield [number]

    def close(self) -> None:
        """Leave a file behind."""
        if self._closed:
            Path(self._closed).touch()


def troublesome(files: PairFiles, kind: str = "", closed: str = "") -> Troublesome:
    """The decoder above, or the error of this kind."""
    if kind == "unsupported":
        raise UnsupportedPairError(f"not {files.name}")
    if kind == "invalid":
        raise ValueError("no such kind")
    if kind == "failed":
        raise OSError("no device")
    return Troublesome(closed)
