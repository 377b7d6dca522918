"""The e-process on an engine: what a fault costs in tokens and seconds, and what scoring costs.

Over-acceptance by 2% is the slightest of the named faults; it is found here through the contract,
from the tokens of a batched, cached engine, with the oracle's own forward passes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from harness import oracle
from harness.adapters.reference import EngineDecoder
from harness.checks.prompts import random_prompt
from harness.contract import Request, Sampling
from harness.models import ModelPair, load_pair
from harness.stats import experts
from harness.stats.eprocess import EProcess
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine

PAIR = "tiny"
FACTOR = 1.02
DRAFT_TOKENS = 8
ROWS, NEW_TOKENS = 1000, 32  # of a batch
MOST = 400_000
SLACK = 1e-4  # nats: some ten times what the log probabilities of this engine are off


class OverAccept(SpeculativeEngine):
    """Acceptance with probability min(1, factor p/q)."""

    factor = FACTOR

    def accept(self, p: Tensor, q: Tensor, u: Tensor) -> Tensor:
        """One coin too generous."""
        return u * q < self.factor * p


@dataclass(frozen=True)
class OnEngine:
    """One run.

    Attributes
    ----------
    tokens : int
        Scored.
    found_after : int or None
        Tokens at which the error level was reached.
    named : str
        What the leading expert says.
    generating, scoring : float
        Seconds; scoring is the oracle's passes and all bets.
    """

    tokens: int
    found_after: int | None
    named: str
    generating: float
    scoring: float

    def __str__(self) -> str:
        found = f"found after {self.found_after:,} tokens: {self.named}"
        return (
            f"over-acceptance by {FACTOR} in the engine, pair {PAIR}, K={DRAFT_TOKENS}: "
            f"{found if self.found_after else 'not found'}\n"
            f"{self.tokens:,} tokens in {self.generating + self.scoring:.1f} s, of which scoring "
            f"took {self.scoring / (self.generating + self.scoring):.0%}"
        )


def detect(
    alpha: float,
    most: int = MOST,
    engine: type[SpeculativeEngine] = OverAccept,
    seed: int = 0,
) -> OnEngine:
    """Generate and score batch by batch until the fault is found, or ``most`` tokens are spent."""
    pair = load_pair(PAIR)
    decoder = EngineDecoder(pair, ModelDrafter(pair.draft, pair.vocab_size), engine=engine)
    process = EProcess(experts.NAMED, q=True, alpha=alpha)
    generating = scoring = 0.0
    size = min(ROWS, -(-most // NEW_TOKENS))
    for batch in range(-(-most // (size * NEW_TOKENS))):
        requests = _requests(pair, seed + batch * size, size)
        start = time.perf_counter()
        completions = decoder.generate(requests)
        between = time.perf_counter()
        answers = [
            oracle.Answer(request, completion.tokens, completion.logprobs)
            for request, completion in zip(requests, completions, strict=True)
        ]
        for rows in oracle.score(pair, answers):
            process.update(rows, SLACK)
        generating += between - start
        scoring += time.perf_counter() - between
        if process.decision().rejected:
            break
    named = process.decision().expert.says
    return OnEngine(process.tokens, process.crossed_at, named, generating, scoring)


def _requests(pair: ModelPair, first: int, size: int) -> Sequence[Request]:
    return [
        Request(
            prompt=random_prompt(pair, 6, first + i),
            max_new_tokens=NEW_TOKENS,
            sampling=Sampling(temperature=1.0),
            seed=first + i,
            draft_tokens=DRAFT_TOKENS,
            logprobs=True,
        )
        for i in range(size)
    ]
