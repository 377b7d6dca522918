"""economize: a draft model, ragged batches, a selector and a stop condition for every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, BatchedPeer
from harness.contract import Completion, FinishReason, Request, Round
from harness.pair_files import OnDisk, UnsupportedPairError


class Economize(BatchedPeer):
    """``decode_batch``; a cycle is the K drafts and the token of the exact pass."""

    package = "economize"
    capabilities = GREEDY | SAMPLED | {"top_p", "eos", "stop", "batch", "plain", "rounds"}
    capabilities |= {"model_draft"}
    crops, seeds = False, True

    def __init__(self, pair: OnDisk) -> None:
        from economize import apply
        from economize.errors import UnsupportedModelError
        from economize.techniques.draft_model import DraftModelConfig

        super().__init__(pair)
        draft = DraftModelConfig(model=str(pair.file("draft", "hf")))
        try:
            self._model = apply(self.target, draft)
        except UnsupportedModelError as error:
            raise UnsupportedPairError(str(error)) from None

    def alike(self, request: Request) -> tuple[Any, ...]:
        """What is said of a whole call."""
        return request.speculate, request.sampling.greedy, request.draft_tokens

    def together(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode requests that are alike in one call."""
        from economize import DecodeConfig

        first = requests[0]
        results = self._model.decode_batch(
            [torch.tensor(request.prompt) for request in requests],
            [request.max_new_tokens for request in requests],
            decoding=DecodeConfig(
                cycle_length=first.draft_tokens + 1 if first.speculate else 1,
                verifier="greedy" if first.sampling.greedy else "rejection",
            ),
            selectors=[_selector(request) for request in requests],
            stops=[_stop(request) for request in requests],
        )
        return [_completion(*both) for both in zip(requests, results, strict=True)]


def _selector(request: Request) -> Any:
    from economize.decoding.selectors import GreedySelector, TopPSampler

    if request.sampling.greedy:
        return GreedySelector()
    # Its own default is seed 0, for every call the same.
    seed = torch.randint(1 << 31, ()).item() if request.seed is None else request.seed
    return TopPSampler(request.sampling.temperature, request.sampling.top_p, int(seed))


def _stop(request: Request) -> Any:
    if not request.stop:
        return request.eos or None
    before = len(request.prompt)
    return lambda tokens: _reason(tokens[before:].tolist(), request) != "length"


def _reason(tokens: list[int], request: Request) -> FinishReason:
    if tokens and tokens[-1] in request.eos:
        return "eos"
    stopped = any(tuple(tokens[-len(stop) :]) == stop for stop in request.stop)
    return "stop" if stopped else "length"


def _completion(request: Request, result: Any) -> Completion:
    tokens = result.tokens.tolist()
    # It lists the passes that verified drafts: the prompt's had none, a last one may have none.
    rounds = [Round(0, 0), *(Round(drafted, accepted) for drafted, accepted in result.acceptance)]
    if sum(entry.accepted + 1 for entry in rounds) < len(tokens):
        rounds.append(Round(0, 0))
    return Completion(
        tokens=tokens,
        finish_reason=_reason(tokens, request),
        rounds=rounds if request.speculate else None,
    )
