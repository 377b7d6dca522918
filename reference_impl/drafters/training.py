"""How drafters are trained on a target's own text: the loss, the optimisers, and the loop.

What differs between the families is a ``Learner``: which states it predicts, of which positions.
"""

from __future__ import annotations

import abc
import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.command_line import BadInput
from reference_impl.drafters.dataset import Batch, Exchanges, Targets

RECIPE = (  # what the result is a function of, beside the target and the machine
    *("block", "depths", "tokens", "batch", "held_out", "vocabulary", "steps", "warm_up", "rows"),
    *("lr", "norm_lr", "weight_decay", "mix", "seed"),
)
CHUNK = 512  # positions scored at once: their laws over the reduced vocabulary fit the cache


class Learner(abc.ABC):
    """A drafter that learns.

    Attributes
    ----------
    module : nn.Module
        What is trained: the parameters of it that require a gradient.
    head : Tensor [R, hidden]
        Rows of the target's head that states are scored with, in the dtype to multiply in.
    """

    module: nn.Module
    head: Tensor

    @abc.abstractmethod
    def predictions(self, batch: Batch) -> list[Tensor]:
        """States [B, T, hidden] that go into the head for the law of the token after each position.

        The k-th is the one that the k-th token of a block is drawn from: what the target has seen
        ends k - 1 positions earlier. Where it ends before the text begins they mean nothing.
        """

    @abc.abstractmethod
    def save(self, folder: Path) -> None:
        """Write what drafting needs."""


def distances(
    predictions: Sequence[Tensor], targets: Targets, head: Tensor, mix: float
) -> list[tuple[Tensor, dict[str, float]]]:
    """Measure how far the draft's laws q are from the target's law p, with the gradients.

    The loss is KL(p || q) + mix * (1 - sum min(p, q)), the mean over positions; the second
    term is the probability of a rejection. The gradient is written out, chunk by chunk,
    because autograd would keep several [n, R] float32 tensors.

    Parameters
    ----------
    predictions : sequence of Tensor [n, hidden]
        The draft's head inputs, detached, at the same positions.
    targets : Targets
        The target's side.
    head : Tensor [R, hidden]
        Head rows of the reduced vocabulary, in the dtype to multiply in.
    mix : float
        Weight of the rejection probability.

    Returns
    -------
    list of (Tensor [n, hidden], dict)
        For each prediction: gradient of the loss by its states; and, as means over positions,
        ``loss``, ``agreement`` (equal top-1 token), ``overlap``.
    """
    gradients = [torch.empty_like(states) for states in predictions]
    sums = [torch.zeros(3, dtype=torch.float64) for _ in predictions]
    count = len(targets.hidden)
    for i in range(0, count, CHUNK):
        here = slice(i, i + CHUNK)
        log_p = F.linear(targets.hidden[here].to(head.dtype), head).float()
        log_p -= targets.log_z[here, None]
        p, best = log_p.exp(), log_p.argmax(-1)
        mass, entropy = p.sum(-1, keepdim=True), (p * log_p).sum(-1)
        for states, gradient, total in zip(predictions, gradients, sums, strict=True):
            log_q = F.linear(states[here].to(head.dtype), head).float().log_softmax(dim=-1)
            q = log_q.exp()
            overlap = torch.minimum(p, q).sum(-1)
            loss = entropy - (p * log_q).sum(-1) + mix * (1 - overlap)
            slope = q * mass - p
            if mix:
                short = torch.where(q < p, q, 0.0)  # where more q is more overlap
                slope += mix * (q * short.sum(-1, keepdim=True) - short)
            gradient[here] = F.linear(slope.to(head.dtype), head.T)
            total += torch.stack([loss.sum(), (log_q.argmax(-1) == best).sum(), overlap.sum()])
    names = ("loss", "agreement", "overlap")
    return [
        (gradient / count, dict(zip(names, (total / count).tolist(), strict=True)))
        for gradient, total in zip(gradients, sums, strict=True)
    ]


def require_muon() -> None:
    """Raise BadInput where torch is too old."""
    if not hasattr(torch.optim, "Muon"):
        raise BadInput("training needs torch >= 2.9, which has torch.optim.Muon: install it")


def make_optimisers(module: nn.Module, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for vectors."""
    require_muon()
    own = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [p for p in own if p.ndim == 2]
    vectors = [p for p in own if p.ndim != 2]
    muon = torch.optim.Muon(matrices, lr=args.lr, weight_decay=args.weight_decay)
    return [muon, torch.optim.AdamW(vectors, lr=args.norm_lr, weight_decay=0.0)]


def rate(step: int, steps: int, warm_up: int) -> float:
    """Learning-rate factor: linear warm-up, if any, then linear decay to zero at ``steps``."""
    return min((step + 1) / max(1, warm_up), (steps - step) / (steps - warm_up))


class Training:
    """State of one training run: learner, optimisers, step, CPU seconds and log."""

    def __init__(self, learner: Learner, data: Exchanges, args: argparse.Namespace) -> None:
        self.learner, self.data, self.args = learner, data, args
        self.optimisers = make_optimisers(learner.module, args)
        self.rates = [optimiser.param_groups[0]["lr"] for optimiser in self.optimisers]
        self.order: tuple[int, list[list[int]]] = (-1, [])
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.log = args.out / "train_log.jsonl"
        self.file = args.work / f"checkpoint-{args.family}.pt"
        self.recipe = {name: value for name, value in vars(args).items() if name in RECIPE}

    def rows(self) -> list[int]:
        """Return the exchanges of the current step."""
        per_epoch = len(self.data.epoch(self.args.rows, 0)) if not self.order[1] else 0
        epoch, i = divmod(self.step, per_epoch or len(self.order[1]))
        if epoch != self.order[0]:
            self.order = (epoch, self.data.epoch(self.args.rows, self.args.seed + epoch))
        return self.order[1][i]

    def update(self) -> dict[str, float]:
        """Do one step; return its figures, those of later predictions with a number behind."""
        start = time.process_time()
        batch = self.data.batch(self.rows())
        with torch.autocast("cpu", torch.bfloat16):
            predictions = self.learner.predictions(batch)
        scored = [states[batch.scored] for states in predictions]
        detached, targets = [states.detach() for states in scored], batch.targets(batch.scored)
        found = distances(detached, targets, self.learner.head, self.args.mix)
        figures: dict[str, float] = {}
        for number, (_, means) in enumerate(found, 1):
            suffix = "" if number == 1 else f" {number}"
            figures |= {f"{name}{suffix}": value for name, value in means.items()}
        self.tokens += len(targets.hidden)
        gradients = [gradient for gradient, _ in found]
        torch.autograd.backward(scored, gradients)
        factor = rate(self.step, self.args.steps, self.args.warm_up)
        for optimiser, full in zip(self.optimisers, self.rates, strict=True):
            optimiser.param_groups[0]["lr"] = full * factor
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        self.seconds += time.process_time() - start
        return figures

    def run(self) -> None:
        """Train to the last step, with a checkpoint every ``save_seconds`` seconds."""
        recent: list[dict[str, float]] = []
        saved = time.monotonic()
        while self.step < self.args.steps:
            recent.append(self.update())
            if self.step % self.args.log_every == 0:
                self.write(recent)
                recent = []
            if time.monotonic() - saved > self.args.save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()

    def write(self, recent: list[dict[str, float]]) -> None:
        """Append the means over the last steps to the log."""
        line: dict[str, float] = {"step": self.step, "tokens": self.tokens}
        line["seconds"] = round(self.seconds, 1)
        for key in recent[0]:
            line[key] = round(sum(figures[key] for figures in recent) / len(recent), 4)
        with self.log.open("a") as log:
            log.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def save(self) -> None:
        """Write the checkpoint and export the drafter as it is now."""
        own = self.learner.module.named_parameters()
        state = {
            "recipe": self.recipe,
            "counts": (self.step, self.tokens, self.seconds),
            "learned": {name: p.detach() for name, p in own if p.requires_grad},
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        partial = self.file.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self.file)
        self.learner.save(self.args.out)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one; else start with an empty log.

        Raises
        ------
        BadInput
            If it is one of a run with other options: what came of it would be neither's.
        """
        lines: list[str] = []
        if self.file.exists():
            state = torch.load(self.file, weights_only=True)  # numbers, never a program
            found, own = state.get("recipe", {}), self.recipe
            if other := [name for name in own if found.get(name) != own[name]]:
                option = other[0].replace("_", "-")
                raise BadInput(
                    f"{self.file} is of a run with another --{option}, {found.get(other[0])}: "
                    "give another --work, or remove it"
                )
            self.step, self.tokens, self.seconds = state["counts"]
            self.learner.module.load_state_dict(state["learned"], strict=False)
            for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(kept)
        if self.step and self.log.exists():
            lines = self.log.read_text().splitlines(keepends=True)
        early = [line for line in lines if json.loads(line)["step"] <= self.step]
        self.log.write_text("".join(early))
