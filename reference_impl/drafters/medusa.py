"""Heads on the target's last state, one for each token ahead (Cai et al. 2024, "Medusa").

The state h of the token before the last gave the law of the last one; head k looks k tokens further
from the same h. The heads know nothing of each other's draws, so the laws q of a block are fixed
before any of its tokens is drawn: any law will do, as long as the drafts are drawn from it.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from reference_impl.batch import Batch
from reference_impl.cache import Ints, fit_vocabulary
from reference_impl.drafters.checkpoints import checked_ids, fill, opened
from reference_impl.drafters.features import FeatureDrafter
from reference_impl.drafters.reduced import ReducedHead
from reference_impl.packed import with_packed_linears
from reference_impl.proposal import Proposal
from reference_impl.transfers import to_device
from reference_impl.tree import Tree

WEIGHTS, SHAPE, VOCABULARY = "medusa_lm_head.safetensors", "config.json", "vocabulary"


class ResBlock(nn.Module):
    """x + SiLU(W x + b), [..., D] to [..., D]; the identity at first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return x + nn.functional.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """Head k is a few ``ResBlock``s and a linear layer to the vocabulary.

    Modules are numbered as FasterDecoding's checkpoints number their weights: ``k.i.linear.weight``
    and ``k.i.linear.bias`` of block i, ``k.n.weight`` of the linear layer behind n blocks.

    Parameters
    ----------
    count : int
        Heads.
    width : int
        D.
    last : nn.Module or int
        The target's own head, [..., D] to [..., V], which all of them share; or V, for a linear
        layer of each one's own.
    blocks : int
        Of each head.

    Attributes
    ----------
    vocabulary : Tensor [R], int64, or None
        Ids that they were trained to propose, where these are not all.
    """

    vocabulary: Tensor | None = None

    def __init__(self, count: int, width: int, last: nn.Module | int, blocks: int = 1) -> None:
        super().__init__()
        for _ in range(count):
            own = nn.Linear(width, last, bias=False) if isinstance(last, int) else last
            self.append(nn.Sequential(*(ResBlock(width) for _ in range(blocks)), own))
        self.blocks = blocks

    def save(self, folder: Path) -> None:
        """Write the blocks, not the head that they share with the target."""
        shape = {"medusa_num_heads": len(self), "medusa_num_layers": self.blocks}
        (folder / SHAPE).write_text(json.dumps(shape, indent=2) + "\n")
        weights = {
            name: weight.detach().to(torch.bfloat16).contiguous()
            for name, weight in self.state_dict().items()
            if ".linear." in name
        }
        if self.vocabulary is not None:
            weights[VOCABULARY] = self.vocabulary
        save_file(weights, folder / WEIGHTS)


def load_medusa(folder: Path, head: nn.Module, width: int) -> MedusaHeads:
    """Heads from a folder in FasterDecoding's layout, in safetensors.

    Parameters
    ----------
    folder : Path
        ``config.json`` with ``medusa_num_heads`` and ``medusa_num_layers``, and
        ``medusa_lm_head.safetensors``. Files of the older ``.pt`` form hold the same names; convert
        them first, where you trust them. Beside those names there may be ``vocabulary``: the ids
        that heads without a linear layer of their own are limited to.
    head : nn.Module
        The target's, for heads that have no linear layer of their own.
    width : int
        Of the target's states.

    Raises
    ------
    ValueError
        If the weights are of another shape, there are none in safetensors, or an id is none of
        the target's.
    """
    names = ("medusa_num_heads", "medusa_num_layers")
    shape, weights = opened(folder, SHAPE, WEIGHTS, names)
    for name, least in zip(names, (1, 0), strict=True):
        if type(shape[name]) is not int or shape[name] < least:
            raise ValueError(
                f"{folder / SHAPE} has {name} {shape[name]!r}: a number from {least} on needed"
            )
    count, blocks = (shape[name] for name in names)
    if (vocabulary := weights.pop(VOCABULARY, None)) is not None:
        rows = head.get_parameter("weight")
        vocabulary = checked_ids(vocabulary, len(rows))
        head = ReducedHead(rows, vocabulary.to(rows.device))
    own = weights.get(f"0.{blocks}.weight")
    heads = MedusaHeads(count, width, head if own is None else len(own), blocks)
    shared = f".{blocks}." if own is None else "-"  # part of the names of what is the target's
    named = {n: p for n, p in heads.named_parameters() if shared not in n}
    fill(named, weights, "Medusa heads")
    heads.vocabulary = vocabulary
    return heads.eval()


class MedusaDrafter(FeatureDrafter):
    """Draws one token from each head, up to as many as there are.

    Parameters
    ----------
    heads : MedusaHeads
    vocab : int
        Token ids in use.
    stop_below : float
        Of ``SequentialDrafter``.
    """

    def __init__(self, heads: MedusaHeads, vocab: int, stop_below: float = 0.0) -> None:
        if heads.vocabulary is not None:
            checked_ids(heads.vocabulary, vocab)
        self.dtype = next(heads.parameters()).dtype
        self.heads = with_packed_linears(heads, torch.bfloat16)
        self.vocab, self.stop_below = vocab, stop_below

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row; none in the first round of a one-token text."""
        return super().propose(batch, np.minimum(count, len(self.heads)) * self.known(batch))

    def logits(self, batch: Batch, drafts: Tensor, step: int) -> Tensor:
        """Of the next head."""
        assert self._features is not None
        if not step:
            at = np.clip(batch.length - 2 - self._first, 0, self._features.shape[1] - 1)
            row = torch.arange(len(batch), device=batch.device)
            self._state = self._features[row, to_device(at, batch.device)]
        return fit_vocabulary(self.heads[step](self._state), self.vocab)

    def observe(self, accepted: Ints) -> None:
        """The states of what was accepted have been seen: there is nothing else to learn."""


class MedusaTree(MedusaDrafter):
    """Combines the likeliest tokens of the heads to a tree of fixed shape.

    Parameters
    ----------
    heads, vocab
        Of ``MedusaDrafter``.
    breadth : int
        A path is in the tree if the product of its tokens' ranks, the likeliest being 1, is at most
        this: the less likely a token is, the less is tried behind it. With three heads the default
        makes nine nodes.
    """

    def __init__(self, heads: MedusaHeads, vocab: int, breadth: int = 2) -> None:
        super().__init__(heads, vocab)
        self.breadth = min(breadth, vocab)

    def nodes(self, levels: int) -> int:
        """How many paths have so many levels, or fewer."""
        return len(paths(min(levels, len(self.heads)), self.breadth))

    def grow(self, batch: Batch, count: Ints) -> Tree:
        """A tree of up to ``count`` [B] levels a row; of a one-token text none at first."""
        count = np.minimum(count, len(self.heads)) * self.known(batch)
        shape = paths(int(count.max()), self.breadth)
        nothing = torch.empty(len(batch), 0, dtype=torch.int64, device=batch.device)
        ranked = [
            self.logits(batch, nothing, level).topk(self.breadth).indices
            for level in range(int(count.max()))
        ]
        columns = [ranked[len(path) - 1][:, path[-1]] for path in shape]
        node = {path: i for i, path in enumerate(((), *shape))}
        parents = np.array([node[path[:-1]] for path in shape], dtype=np.int64)
        depth = np.array([len(path) for path in shape], dtype=np.int64)
        inside = depth <= count[:, None]
        return Tree(
            torch.stack(columns, 1) if columns else nothing,
            to_device(parents, batch.device).expand(len(batch), -1),
            to_device(inside, batch.device),
            inside.sum(1),
            count,
            self.breadth,
        )


@functools.cache
def paths(levels: int, breadth: int) -> tuple[tuple[int, ...], ...]:
    """Ranks, from 0, along every path of a tree, level by level."""
    found: list[tuple[int, ...]] = []
    level: list[tuple[int, ...]] = [()]
    for _ in range(levels):
        level = [
            (*path, rank)
            for path in level
            for rank in range(breadth // math.prod(r + 1 for r in path))
        ]
        found += level
    return tuple(found)
