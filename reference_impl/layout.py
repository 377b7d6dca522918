"""Where the nodes of a drafted tree stand in a cache, and what each of them sees."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reference_impl.transfers import to_device

if TYPE_CHECKING:
    from reference_impl.cache import Ints


@dataclass(frozen=True)
class Layout:
    """Tokens that are no chain: a tree in the S slots behind the text, of which some are fed now.

    Attributes
    ----------
    start : ndarray [B], int64
        Tokens of each row's text: all nodes see them.
    depth : Tensor [B, S], int64
        Node s stands at position start + depth.
    ancestors : Tensor [B, S, S], bool
        Whether node i sees node j; every node sees itself.
    first, width : int
        The nodes that are fed; those before them were.
    """

    start: Ints
    depth: Tensor
    ancestors: Tensor
    first: int
    width: int

    @property
    def visible(self) -> int:
        """Slots up to the last one that is fed."""
        return int(self.start.max()) + self.first + self.width

    @functools.cached_property
    def starts(self) -> Tensor:
        """Tokens of each text, [B, 1] on the device."""
        return to_device(self.start, self.depth.device).unsqueeze(1)

    def slots(self) -> Tensor:
        """Where the nodes go, [B, width]."""
        steps = torch.arange(self.first, self.first + self.width, device=self.depth.device)
        return self.starts + steps

    def positions(self) -> Tensor:
        """Positions of the nodes, [B, width]."""
        return self.starts + self.depth[:, self.first : self.first + self.width]

    def seen(self) -> tuple[Tensor, Tensor]:
        """Slots that each node sees [B, width, visible]; positions they hold [B, visible]."""
        slot = torch.arange(self.visible, device=self.depth.device)
        node = slot - self.starts  # below 0: the text
        at = node.clamp(0, self.depth.shape[1] - 1)
        ours = self.ancestors[:, self.first : self.first + self.width]
        among = ours.gather(2, at.unsqueeze(1).expand(-1, self.width, -1))
        inside = (node >= 0) & (node < self.first + self.width)
        seen = (node < 0).unsqueeze(1) | (inside.unsqueeze(1) & among)
        return seen, torch.where(node < 0, slot, self.starts + self.depth.gather(1, at))
