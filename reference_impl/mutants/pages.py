"""Faults of the bare rule: the page, handed other laws or other coins than it should get."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from harness.adapters.reference import PageDecoder
from harness.contract import Completion, Request
from harness.verdict import FaultClass
from reference_impl import speculative
from reference_impl.autoregressive import Laws
from reference_impl.mutants.registry import wrong_decoder
from reference_impl.randomness import Randomness
from reference_impl.speculative import Propose


class _Eager:
    """Randomness whose coins fall well more often than they should."""

    def __init__(self, randomness: Randomness, factor: float) -> None:
        self.choice = randomness.choice
        self._flip, self._factor = randomness.flip, factor

    def flip(self, probability: float) -> bool:
        return self._flip(self._factor * probability)


@wrong_decoder(FaultClass.ACCEPTANCE, "exact_law.tables")
class OverAcceptingPage(PageDecoder):
    """The bare rule accepts with probability min(1, 1.01 p/q)."""

    @staticmethod
    def rule(
        target: Laws, propose: Propose, request: Request, randomness: Randomness
    ) -> Completion:
        return speculative.decode(target, propose, request, _Eager(randomness, 1.01))


@wrong_decoder(FaultClass.PROPOSAL, "exact_law.tables")
class UnnormalisedPage(PageDecoder):
    """The bare rule takes scores for the draft's probabilities: 1.01 times too large."""

    @staticmethod
    def rule(
        target: Laws, propose: Propose, request: Request, randomness: Randomness
    ) -> Completion:
        def scaled(
            output: Sequence[int], count: int, coins: Randomness
        ) -> tuple[list[int], Tensor]:
            tokens, q = propose(output, count, coins)
            return tokens, 1.01 * q

        return speculative.decode(target, scaled, request, randomness)


@wrong_decoder(FaultClass.ACCEPTANCE, "exact_law.tables")
class ShiftedPage(PageDecoder):
    """The bare rule judges every token of a block by the row after it."""

    @staticmethod
    def rule(
        target: Laws, propose: Propose, request: Request, randomness: Randomness
    ) -> Completion:
        def later(output: Sequence[int], count: int) -> Tensor:
            rows = target(output, count)
            return rows[[*range(1, count), count - 1]]

        return speculative.decode(later, propose, request, randomness)
