"""flashspec: a model drafter at a fixed gamma, one request at a time or alike ones together.

Rows of one call share its settings and one generator, so none has a seed of its own. Rows that
stop early are filled up with -1, which is no part of them; a -1 before their last token is. Rounds
are reported for a call, not for a row, so in a batch there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.adapters.peers.base import GREEDY, SAMPLED, BatchedPeer, Peer, completion
from harness.contract import Completion, Request, Round
from harness.pair_files import OnDisk


class Single(Peer):
    """``SpeculativeEngine.generate`` with one ``HuggingFaceDrafter``, batch 1."""

    package = "flashspec"
    capabilities = GREEDY | SAMPLED | {"eos", "rounds", "model_draft"}

    def __init__(self, pair: OnDisk) -> None:
        from flashspec.engine import HuggingFaceDrafter, TargetModel

        super().__init__(pair)
        cpu, full = torch.device("cpu"), torch.float32
        self._target = TargetModel("target", cpu, full, model=self.target)
        self._drafter = HuggingFaceDrafter("draft", cpu, full, model=self.draft)

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        result = self.call([request])
        rounds = [Round(step.proposed, step.accepted) for step in result.arm_steps]
        return completion(_unpadded(result.output_ids[0]), request, rounds=rounds)

    def call(self, requests: Sequence[Request]) -> Any:
        """One call for requests that differ in the ids of their prompts alone."""
        from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine

        first = requests[0]
        temperature, seed = first.sampling.temperature, first.seed
        config = FlashSpecConfig(
            device="cpu",
            drafter_strategy="bandit",
            bandit=BanditConfig(n_arms=1),
            sampling=SamplingConfig(gamma=first.draft_tokens, temperature=temperature, seed=seed),
        )
        self._drafter.set_temperature(temperature or 1.0)
        prompts = torch.tensor([request.prompt for request in requests])
        engine = SpeculativeEngine(config, [self._drafter], self._target)
        return engine.generate(prompts, first.max_new_tokens, first.eos)


class Batched(BatchedPeer, Single):
    """The same with as many rows in a call as it takes, which have no seeds of their own."""

    capabilities = GREEDY | {"sampling", "eos", "batch"}

    def alike(self, request: Request) -> tuple[Any, ...]:
        """All but the ids of the prompt."""
        r = request
        return len(r.prompt), r.sampling.temperature, r.draft_tokens, r.max_new_tokens, r.eos

    def together(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode requests that are alike in one call."""
        output = self.call(requests).output_ids
        return [
            completion(_unpadded(row), request)
            for row, request in zip(output, requests, strict=True)
        ]


def _unpadded(ids: torch.Tensor) -> list[int]:
    row = ids.tolist()
    return row[: max((i + 1 for i, token in enumerate(row) if token != -1), default=0)]
