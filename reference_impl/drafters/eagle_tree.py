"""A tree that grows where the layer is sure (Li et al. 2024, "EAGLE-2").

At every level the likeliest tokens of all nodes are candidates, and the best of them by the product
of probabilities from the root on are gone on with. In the end the best of all candidates are
kept: as a child is never likelier than its parent, they are a tree. No coin is involved, so every
node is a point mass when it is verified.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from reference_impl.batch import Batch
from reference_impl.cache import Ints, fit_vocabulary
from reference_impl.drafters.eagle import EagleDrafter, EagleLayer
from reference_impl.drafters.reduced import ReducedHead
from reference_impl.layout import Layout
from reference_impl.transfers import to_device
from reference_impl.tree import Tree

TIE = 1e-9  # of log probability that a level costs: of two equals, the parent comes first


class EagleTree(EagleDrafter):
    """Proposes the best ``size`` nodes of a tree with ``breadth`` open ends.

    Parameters
    ----------
    layer, target, vocab
        Of ``EagleDrafter``.
    breadth : int
        Nodes of a level that are gone on with, and candidates that each of them gives; no more than
        the layer has tokens to propose.
    size : int
        Most nodes of the tree. With the token before them the default makes eight, which cost the
        target on a CPU hardly more than one.
    """

    def __init__(
        self,
        layer: EagleLayer,
        target: PreTrainedModel,
        vocab: int,
        breadth: int = 4,
        size: int = 7,
    ) -> None:
        super().__init__(layer, target, vocab)
        tokens = vocab if layer.vocabulary is None else len(layer.vocabulary)
        self.breadth, self.size = min(breadth, tokens), size

    def start(self, batch: Batch, capacity: int) -> None:
        """Begin with nothing; the layer is fed nodes that are not kept, too."""
        levels = min(int(batch.draft_tokens.max()), self.size)
        super().start(batch, capacity + self.breadth * levels)

    def candidates(self, levels: int) -> int:
        """How many there are up to a level."""
        return self.breadth + self.breadth**2 * (levels - 1) if levels else 0

    def nodes(self, levels: int) -> int:
        """How many of them are kept."""
        return min(self.size, self.candidates(levels))

    def grow(self, batch: Batch, count: Ints) -> Tree:
        """A tree of up to ``count`` [B] levels a row; of a one-token text none at first.

        There are no more levels than nodes: the engine has no slots for a longer path.
        """
        count = self.drafting(batch, np.minimum(count, self.size))
        levels = int(count.max())
        used = np.array([self.nodes(k) for k in count.tolist()], dtype=np.int64)
        if not levels:
            none = torch.empty(len(batch), 0, dtype=torch.int64, device=batch.device)
            return Tree(none, none, none.bool(), used, count, self.breadth)
        tokens, parents, scores = self._candidates(batch, levels)
        step = torch.arange(scores.shape[1], device=batch.device)
        level = (step >= self.breadth) * ((step - self.breadth) // self.breadth**2 + 1) + 1
        rows = to_device(count, batch.device).unsqueeze(1)
        scores = (scores - TIE * level).masked_fill(level > rows, -torch.inf)
        best = scores.topk(self.nodes(levels)).indices.sort(1).values
        order = torch.arange(1, best.shape[1] + 1, device=batch.device).expand_as(best)
        numbers = step.new_zeros(len(batch), len(step) + 1)
        numbers.scatter_(1, best + 1, order)  # of the candidates, as nodes; the root stays 0
        return Tree(
            tokens.gather(1, best),
            numbers.gather(1, parents.gather(1, best)),
            order <= to_device(used, batch.device).unsqueeze(1),
            used,
            count,
            self.breadth,
        )

    def _candidates(self, batch: Batch, levels: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, parents (candidates from 1 on, 0: the root), log probabilities: [B, C] each."""
        row = torch.arange(len(batch), device=batch.device).unsqueeze(1)
        state = self._catch_up(batch).unsqueeze(1)  # of the nodes that are gone on with, [B, w, D]
        nodes = torch.zeros(len(batch), 1, dtype=torch.int64, device=batch.device)
        total = torch.zeros(len(batch), 1, dtype=torch.float64, device=batch.device)
        fed = _Fed(batch.length - 1, batch.device)
        tokens: list[Tensor] = []
        parents: list[Tensor] = []
        scores: list[Tensor] = []
        for level in range(levels):
            ids, logs = self._likeliest(state)
            score = (total.unsqueeze(2) + logs).flatten(1)
            first = 1 + sum(part.shape[1] for part in tokens)
            tokens.append(ids.flatten(1))
            parents.append(nodes.repeat_interleave(self.breadth, 1))
            scores.append(score)
            if level + 1 == levels:
                break
            best = score.topk(self.breadth)
            above, nodes, total = best.indices // self.breadth, first + best.indices, best.values
            layout = fed.append(above if level else None, self.breadth)
            inputs = self.layer.inputs(
                self.embed(tokens[-1].gather(1, best.indices)), state[row, above]
            )
            state = self._model.states(inputs, layout)
        return torch.cat(tokens, 1), torch.cat(parents, 1), torch.cat(scores, 1)

    def _likeliest(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of every node, and their log probabilities, [B, w, breadth]."""
        ids = None
        if isinstance(self.head, ReducedHead):  # all others have probability 0: not written out
            logits, ids = self.head.rows(state), self.head.vocabulary
        else:
            logits = fit_vocabulary(self.head(state), self.vocab)
        exact = torch.promote_types(logits.dtype, torch.float32)
        found = logits.to(exact).log_softmax(-1).topk(self.breadth)
        return found.indices if ids is None else ids[found.indices], found.values.double()


class _Fed:
    """The nodes that the layer was fed, ``breadth`` a level, behind the states of the text."""

    def __init__(self, start: Ints, device: torch.device) -> None:
        self.start, self.device = start, device
        self.seen = torch.empty(len(start), 0, 0, dtype=torch.bool, device=device)
        self.depth: list[int] = []

    def append(self, above: Tensor | None, width: int) -> Layout:
        """Add a level; ``above`` [B, width] are its parents' places in the level before."""
        rows, before = len(self.start), len(self.depth)
        seen = torch.eye(width, dtype=torch.bool, device=self.device).repeat(rows, 1, 1)
        if above is not None:
            row = torch.arange(rows, device=self.device).unsqueeze(1)
            seen = torch.cat([self.seen[row, before - width + above], seen], 2)
        unseen = torch.zeros(rows, before, width, dtype=torch.bool, device=self.device)
        self.seen = torch.cat([torch.cat([self.seen, unseen], 2), seen], 1)
        self.depth += [self.depth[-1] + 1 if self.depth else 0] * width
        depth = to_device(np.array(self.depth), self.device).repeat(rows, 1)
        return Layout(self.start, depth, self.seen, before, width)
