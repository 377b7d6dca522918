"""How much a run measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DRAFT_TOKENS = 3  # K unless told otherwise: blocks of four suit most matrix kernels


@dataclass(frozen=True)
class Profile:
    """The size of a run.

    Attributes
    ----------
    prompts : int or None
        Per task; None takes all there are.
    max_new_tokens : int
        Of every output.
    repeats : int
        How often each prompt is measured.
    """

    prompts: int | None
    max_new_tokens: int
    repeats: int

    def __str__(self) -> str:
        count = "all" if self.prompts is None else str(self.prompts)
        times = "once" if self.repeats == 1 else f"{self.repeats} times"
        return f"{count} prompts of each task, {self.max_new_tokens} new tokens, {times}"


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(prompts=4, max_new_tokens=40, repeats=1),
    "default": Profile(prompts=8, max_new_tokens=64, repeats=1),
    "full": Profile(prompts=None, max_new_tokens=96, repeats=2),
}
