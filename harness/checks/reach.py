"""What the evidence of so many tokens could have shown: the power of an e-process on this pair."""

from __future__ import annotations

import math

from harness.stats import experts
from harness.stats.certificate import Growth
from harness.stats.eprocess import EProcess
from harness.stats.rows import Rows

POWER = 0.99
EVERY = 8  # chunks of contexts, of which one is looked at: that takes longer than to bet on them
EFFECTS = (  # the first that the budget is enough for sets the number of tokens
    "drafts are accepted with probability min(1, 1.1 p/q)",
    "drafts are accepted with probability min(1, 1.5 p/q)",
)
EFFECTS_OF_ANY_DRAFT = (
    "tokens follow p^1.05 / Z: another temperature",
    "a share of 0.3 of the tokens is the likeliest one instead of a draw",
)
GROSS = "a share of 0.9 of the tokens comes from the draft, unverified"
GROSS_OF_ANY_DRAFT = "a share of 0.97 of the tokens is the likeliest one instead of a draw"


class Reach:
    """Tokens that a fault takes to be found, and how many there were.

    Parameters
    ----------
    process : EProcess
        The test.
    knows_draft : bool
        Whether the decoder's drafts are those of the pair's draft model.

    Attributes
    ----------
    growth : Growth
    kept : float
        Sum of the acceptance over the contexts of ``growth``.
    effective : float
        Tokens seen, as many drafted ones as would say as much.
    """

    def __init__(self, process: EProcess, knows_draft: bool) -> None:
        self.knows_draft = knows_draft
        # The log wealth at which any one expert decides.
        self.threshold = -math.log(process.alpha) - float(process.log_weights.min())
        self.growth = Growth([e for e in experts.NAMED if "replayed" not in e.needs])
        self.kept = 0.0
        self.effective = 0.0

    def look(self, rows: Rows) -> None:
        """Take in the contexts of these rows."""
        self.growth.update(rows)
        self.kept += float(rows.kept().sum())

    def count(self, tokens: int, draft_tokens: int) -> None:
        """Take in that so many tokens were judged, with ``draft_tokens`` a round."""
        # An expert on acceptance loses in a bonus token about what it wins in a drafted one.
        share = 2 * self.drafted_share(draft_tokens) - 1 if self.knows_draft else 1
        self.effective += max(0.0, share) * tokens

    def drafted_share(self, draft_tokens: int) -> float:
        """Of the tokens of a right decoder, at this pair's mean acceptance b.

        A round has 1 + b + ... + b^K tokens, and the last one is a bonus with probability b^K.
        """
        b, k = self.kept / max(1, self.growth.rows), draft_tokens
        return 1 - b**k / sum(b**i for i in range(k + 1))

    def needed(self, most: float) -> float:
        """Effective tokens after which the slightest effect that ``most`` can show has shown."""
        if not self.growth.rows:
            return math.inf
        for effect in (*EFFECTS, *EFFECTS_OF_ANY_DRAFT)[0 if self.knows_draft else len(EFFECTS) :]:
            if (needed := self._needed(effect)) <= most:
                return needed
        return most

    @property
    def gross(self) -> float:
        """Effective tokens that a gross fault takes to be found with probability ``POWER``.

        One of acceptance, where the draft is known and not the target; else one that any draft
        shows.
        """
        gross = self._needed(GROSS)
        if not self.knows_draft or gross == math.inf:
            gross = self._needed(GROSS_OF_ANY_DRAFT)
        return gross

    @property
    def says_something(self) -> bool:
        """Whether at least a gross fault would have been found with probability ``POWER``."""
        return self.gross <= self.effective

    def visible(self) -> list[str]:
        """Faults that would have been found with probability ``POWER``."""
        found = self.growth.visible(int(self.effective), self.threshold, POWER)
        return [e.says for e in found if self.knows_draft or "q" not in e.needs]

    def _needed(self, effect: str) -> float:
        says = [e.says for e in self.growth.experts]
        return self.growth.tokens_needed(says.index(effect), self.threshold, POWER)
