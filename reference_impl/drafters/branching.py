"""A draft model that goes on in several ways at once: trees of draws, or of likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from reference_impl import sampling
from reference_impl.batch import Batch
from reference_impl.cache import Ints
from reference_impl.drafters.model import ModelDrafter
from reference_impl.layout import Layout
from reference_impl.randomness import inverse_cdf
from reference_impl.transfers import to_device
from reference_impl.tree import Tree


class BranchingDrafter(ModelDrafter):
    """Draws so many children at every node of a level, from the draft's law there.

    Where all rows are greedy the children are the likeliest tokens. Beside a sampled row a greedy
    one draws as well, from a law of one token: it has one child there, is accepted less often, and
    its ids are the same.

    Parameters
    ----------
    draft : PreTrainedModel
        With keys and values.
    vocab : int
        Token ids in use.
    widths : sequence of int
        Children of a node, level by level; one each on deeper levels.
    replaced : bool
        Whether siblings are drawn with replacement.
    """

    follows_the_request = False  # it proposes more than one chain

    def __init__(
        self,
        draft: PreTrainedModel,
        vocab: int,
        widths: Sequence[int] = (3, 2),
        replaced: bool = False,
    ) -> None:
        super().__init__(draft, vocab)
        self.widths, self.replaced = tuple(widths), replaced

    def sizes(self, levels: int) -> list[int]:
        """Nodes of each level, the root's first."""
        widths = [*self.widths, *[1] * levels][:levels]
        return [1, *np.cumprod(widths).tolist()]

    def nodes(self, levels: int) -> int:
        """Nodes of all levels, without the root."""
        return sum(self.sizes(levels)) - 1

    def grow(self, batch: Batch, count: Ints) -> Tree:
        """A tree of ``count`` [B] levels a row."""
        levels = int(count.max())
        sizes, used = self.sizes(levels), np.array([self.nodes(k) for k in count.tolist()])
        self._before = batch.length
        coins = batch.streams.uniform(sum(sizes) - 1, to_device(used, batch.device))
        none = torch.empty(len(batch), 0, dtype=torch.int64, device=batch.device)
        breadth = max([1, *self.widths[:levels]])
        host = used, count, breadth, None, self.replaced
        tree = Tree(none, none.clone(), none.bool(), *host)
        paths, logits = [none], self._catch_up(batch).unsqueeze(1)  # texts of the level's nodes
        laws: list[Tensor] = []
        for level in range(levels):
            first, width = tree.size + 1 - sizes[level], sizes[level + 1] // sizes[level]
            grown: list[Tensor] = []
            for i, path in enumerate(paths):
                at = tree.size + torch.arange(width)
                tokens, law, valid = self._children(logits[:, i], batch, path, width, coins[:, at])
                valid &= to_device(count > level, batch.device).unsqueeze(1)
                if first:
                    valid &= tree.valid[:, first + i - 1 : first + i]
                laws += [law] if law is not None else []
                parents = torch.full_like(tokens, first + i)
                tree = Tree(
                    torch.cat([tree.tokens, tokens], 1),
                    torch.cat([tree.parents, parents], 1),
                    torch.cat([tree.valid, valid], 1),
                    *host,
                )
                grown += [torch.cat([path, token.unsqueeze(1)], 1) for token in tokens.unbind(1)]
            paths = grown
            if level + 1 < levels:
                logits = self._feed_level(batch, tree, len(paths))
        if laws:  # leaves have no children: any law will do
            laws += [laws[-1]] * (tree.size + 1 - len(laws))
            tree.q = torch.stack(laws, 1)
        return tree

    def _feed_level(self, batch: Batch, tree: Tree, width: int) -> Tensor:
        """Feed the last ``width`` nodes; their logits [B, width, V]."""
        depth, ancestors = tree.depth[:, 1:] - 1, tree.ancestors[:, 1:, 1:]
        layout = Layout(batch.length, depth, ancestors, tree.size - width, width)
        return self._model.tree(tree.tokens[:, -width:], layout)

    def _children(
        self, logits: Tensor, batch: Batch, path: Tensor, width: int, u: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Tokens [B, width] after the text and a path [B, L], their law, and which are valid."""
        history = batch.history
        if history is not None and path.shape[1]:
            history = history.extended(path, torch.ones_like(path, dtype=torch.bool))
        new_tokens = batch.new_tokens() + path.shape[1]
        processed = sampling.process(logits.float(), batch.parameters, history, new_tokens)
        if batch.parameters.greedy:
            likeliest = processed.topk(width)
            return likeliest.indices, None, likeliest.values > -torch.inf
        law = sampling.normalise(processed, batch.parameters)
        left, tokens, valid = law, [], []
        for i in range(width):
            some = left.sum(1) > 0
            token = inverse_cdf(torch.where(some.unsqueeze(1), left, law), u[:, i])
            tokens.append(token)
            valid.append(some)
            if not self.replaced:
                left = left.scatter(1, token.unsqueeze(1), 0.0)
        return torch.stack(tokens, 1), law, torch.stack(valid, 1)

    def observe(self, accepted: Ints) -> None:
        """Roll back to the text: the path that was taken is fed again, as a chain."""
        self._cached = self._before
