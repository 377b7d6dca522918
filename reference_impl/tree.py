"""Trees of drafts: several continuations at once, verified by one call of the target.

Every node is a drafted token, its children are candidates for the token after it. The target is
fed all nodes in one pass in which each sees the text and its own ancestors; then the path is walked
from the root. At a node with law p the children are tried in turn (SpecInfer, Miao et al. 2023):
child c, drawn from q, is entered with probability min(1, p(c) / q(c)); if it is not, p becomes the
residual (p - q)+, normalised, and the next one is tried against that. Where no child is entered,
what is left of p gives the token that ends the round.

Why it is exact. One trial is the token-wise rule of ``speculative.py``: its output follows p, be it
the child or a draw from the residual. Replacing that draw by the next trial, whose output follows
the residual, changes nothing. This asks that each child is drawn from its q independently of the
coins, given the siblings before it:

    fixed                the likeliest tokens: each is a point mass
    with replacement     draws from one q, which stays as it is
    without replacement  draws from what the siblings before have left of q (Jeon et al. 2024,
                         "Recursive Speculative Decoding"); q is renormalised after each of them
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impl import sampling
from reference_impl.acceptance import falls
from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints
from reference_impl.engine import SpeculativeEngine
from reference_impl.layout import Layout
from reference_impl.proposal import Drafter, Emitted, Proposal
from reference_impl.randomness import inverse_cdf
from reference_impl.recurrent import RecurrentModel
from reference_impl.sampling import one_hot
from reference_impl.speculative import residual
from reference_impl.transfers import to_device


@dataclass
class Tree:
    """Drafted tokens of B rows. Node 0 is the last token of the text; parents come before children.

    Attributes
    ----------
    tokens : Tensor [B, N], int64
        Of nodes 1 to N: column i is node i + 1.
    parents : Tensor [B, N], int64
        Their parents, nodes 0 to N.
    valid : Tensor [B, N], bool
        Which of them a row proposes; a node that is not valid has no valid children.
    used, levels : ndarray [B], int64
        Nodes of a row, valid or not, and steps from the root to the deepest of them, by its own K:
        coins are told apart by node, and must not depend on the other rows.
    breadth : int
        Most children that a node may have.
    q : Tensor [B, N + 1, V], or None
        The law that the children of each node were drawn from; None where all of them were fixed.
    replaced : bool
        Whether they were drawn with replacement.
    """

    tokens: Tensor
    parents: Tensor
    valid: Tensor
    used: Ints
    levels: Ints
    breadth: int
    q: Tensor | None = None
    replaced: bool = False

    @property
    def size(self) -> int:
        """Nodes that are drafted."""
        return int(self.tokens.shape[1])

    def token(self, node: Tensor) -> Tensor:
        """Tokens [B] of nodes [B]; 0 for the root."""
        return pad(self.tokens, (1, 0)).gather(1, node.unsqueeze(1)).squeeze(1)

    @cached_property
    def ancestors(self) -> Tensor:
        """Whether node i sees node j, [B, N + 1, N + 1]: itself, and those above it."""
        rows, size = self.tokens.shape
        row = torch.arange(rows, device=self.tokens.device)
        seen = torch.eye(size + 1, dtype=torch.bool, device=self.tokens.device).repeat(rows, 1, 1)
        for node in range(1, size + 1):
            seen[:, node] |= seen[row, self.parents[:, node - 1]]
        return seen

    @cached_property
    def depth(self) -> Tensor:
        """Steps from the root, [B, N + 1]; the root's is 0."""
        return self.ancestors.sum(2) - 1

    @cached_property
    def children(self) -> Tensor:
        """Valid children of every node in their order, [B, N + 1, breadth]; 0 where no more."""
        same = (self.parents.unsqueeze(2) == self.parents.unsqueeze(1)) & self.valid.unsqueeze(1)
        place = same.tril(-1).sum(2)  # among its parent's children
        node = torch.arange(1, self.size + 1, device=self.tokens.device) * self.valid
        table = node.new_zeros(len(node), (self.size + 1) * self.breadth)
        where = (self.parents * self.breadth + place).clamp(max=table.shape[1] - 1)
        return table.scatter_add(1, where, node).view(len(node), self.size + 1, self.breadth)


@runtime_checkable
class TreeDrafter(Drafter, Protocol):
    """Proposes trees."""

    def grow(self, batch: Batch, count: Ints) -> Tree:
        """A tree of at most ``count`` [B] levels a row."""
        ...

    def nodes(self, levels: int) -> int:
        """How many nodes a tree of so many levels may have."""
        ...


@dataclass
class Walk:
    """The way through each row's tree.

    Attributes
    ----------
    path : Tensor [B, L + 1], int64
        Nodes entered, the root first; the last one again, once a row has stopped.
    tokens : Tensor [B, L + 1], int64
        Those of the nodes entered, and the one that ends the round; padded with anything.
    accepted : Tensor [B], int64
        Nodes entered, without the root.
    logprobs : Tensor [B, L + 1] or None
    """

    path: Tensor
    tokens: Tensor
    accepted: Tensor
    logprobs: Tensor | None


class TreeEngine(SpeculativeEngine):
    """Verifies trees, and keeps the path that the target takes.

    ``draft_tokens`` of a request are the levels of its tree; rounds count levels.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if not isinstance(self.drafter, TreeDrafter):
            raise TypeError(f"{type(self.drafter).__name__} proposes no trees")

    def capacity(self, batch: Batch) -> int:
        """Cache slots of a row: its longest text, and a whole tree."""
        assert isinstance(self.drafter, TreeDrafter)
        return batch.tokens.shape[1] + self.drafter.nodes(int(batch.draft_tokens.max())) + 1

    def cache(self, capacity: int) -> CachedModel:
        """The target with an empty cache; ValueError if it is recurrent."""
        target = super().cache(capacity)
        if isinstance(target, RecurrentModel):
            raise ValueError("trees need a target with keys and values: a state has one past")
        return target

    def round(self, batch: Batch, target: CachedModel, cached: Ints) -> Ints:
        """Run one round; returns the valid length of every cached row."""
        room = batch.room()
        if not room.any():
            return super().round(batch, target, cached)
        assert isinstance(self.drafter, TreeDrafter)
        with batch.clock.part("draft"):
            tree = self.drafter.grow(batch, room)
        with batch.clock.part("verify"):
            logits = self.verify_tree(batch, target, cached, tree)
        batch.fed(tree.used + 1)
        walk = self.walk(batch, logits, tree)
        target.move(cached, walk.path)
        self.show(target, cached)
        chain = Proposal(walk.tokens[:, :-1], tree.levels)
        return self.commit(batch, cached, Emitted(chain, walk.accepted, walk.tokens, walk.logprobs))

    def verify_tree(self, batch: Batch, target: CachedModel, cached: Ints, tree: Tree) -> Tensor:
        """Feed the last token of every row, and its tree; logits [B, N + 1, V]."""
        last = to_device(batch.tokens_from(batch.length - 1, 1), self.device)
        ids = torch.cat([last, tree.tokens], 1)
        layout = Layout(cached, tree.depth, tree.ancestors, 0, tree.size + 1)
        return self.rows(target.tree(ids, layout))

    def walk(self, batch: Batch, logits: Tensor, tree: Tree) -> Walk:
        """Go from the root as far as the target's laws lead, and draw the token after that."""
        used = to_device(tree.used, self.device)
        u = batch.streams.uniform(tree.size + 1, used=used + 1)
        row, history = torch.arange(len(batch), device=self.device), batch.history
        at, walking = torch.zeros_like(row), torch.ones_like(row, dtype=torch.bool)
        path, tokens, laws = [at], [], []
        greedy = batch.parameters.greedy
        ends = torch.zeros_like(row)  # what ends the round: a token, or the law to draw it from
        left = torch.zeros(len(batch), self.vocab, dtype=torch.float64, device=self.device)
        for level in range(int(tree.levels.max()) + 1):
            here = logits[row, at].float()
            new_tokens = batch.new_tokens() + level
            processed = sampling.process(here, batch.parameters, history, new_tokens)
            reached = torch.where(walking, at, -1)
            if greedy:
                best = processed.argmax(-1)
                child = self.match_children(best, tree, reached)
                ends = torch.where(walking & (child == 0), best, ends)
            else:
                p = sampling.normalise(processed, batch.parameters)
                child, rest = self.try_children(p, tree, reached, u)
                left = torch.where((walking & (child == 0)).unsqueeze(1), rest, left)
            walking = walking & (child > 0)
            at = torch.where(walking, child, at)
            laws.append(processed)
            path.append(at)
            tokens.append(tree.token(at))
            if history is not None:
                history = history.extended(tokens[-1].unsqueeze(1), walking.unsqueeze(1))
        chosen = ends if greedy else inverse_cdf(left, u.gather(1, used.unsqueeze(1)).squeeze(1))
        way = torch.stack(path[:-1], 1)  # nothing is entered at the last level: it has no children
        accepted = (way[:, 1:] != way[:, :-1]).sum(1)
        emitted = torch.stack(tokens, 1).scatter(1, accepted.unsqueeze(1), chosen.unsqueeze(1))
        logprobs = self.logprobs(torch.stack(laws, 1), batch, emitted)
        return Walk(way, emitted, accepted, logprobs)

    def match_children(self, best: Tensor, tree: Tree, at: Tensor) -> Tensor:
        """Where all rows are greedy: the child that is the target's own token ``best`` [B], or 0.

        Children are told apart by their tokens there; ``at`` [B] as in ``try_children``.
        """
        row = torch.arange(len(at), device=self.device)
        children = tree.children[row, at.clamp(min=0)]
        same = pad(tree.tokens, (1, 0)).gather(1, children) == best.unsqueeze(1)
        return (children * (same & (at >= 0).unsqueeze(1))).sum(1)

    def try_children(self, p: Tensor, tree: Tree, at: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Try the children of the nodes reached, in their order.

        Parameters
        ----------
        p : Tensor [B, V]
            Laws after those nodes.
        at : Tensor [B], int64
            The nodes; -1 for rows that have stopped.
        u : Tensor [B, N + 1], float64
            The coin of node i is column i - 1.

        Returns
        -------
        Tensor [B], int64
            The child that was entered, 0 where none was.
        Tensor [B, V], float64
            What is left of p where none was.
        """
        row, stopped = torch.arange(len(p), device=self.device), at < 0
        left, entered = p.double(), torch.zeros_like(at)
        q = None if tree.q is None else tree.q[row, at.clamp(min=0)].double()
        for child in tree.children[row, at.clamp(min=0)].unbind(1):
            tried = (child > 0) & (entered == 0) & ~stopped
            token = tree.token(child)
            law = one_hot(token, self.vocab).double() if q is None else q
            coin = u[row, (child - 1).clamp(min=0)]
            enters = falls(coin, self.chance(left, law, token, tried))
            entered = torch.where(enters, child, entered)
            rest = residual(left, law)
            rejected = (tried & ~enters).unsqueeze(1)
            left = torch.where(rejected, rest / rest.sum(1, keepdim=True), left)
            if q is not None and not tree.replaced:
                others = q.scatter(1, token.unsqueeze(1), 0.0)
                q = torch.where(rejected, others / others.sum(1, keepdim=True), q)
        return entered, left

    def chance(self, p: Tensor, q: Tensor, token: Tensor, tried: Tensor) -> Tensor:
        """p(token) / q(token), [B], where it is tried; else 0."""
        at = token.unsqueeze(1)
        return torch.where(tried, (p.gather(1, at) / q.gather(1, at)).squeeze(1), 0.0)
