"""Train the reduced-vocabulary draft on the target's own text (self-distillation).

`python -m reference_impl.drafters.train --target DIR --work DIR --out DIR` samples the
corpus, trains and evaluates. Each stage resumes where it stopped, and on one machine with
fixed numbers of threads the result is a function of the arguments.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from reference_impl.drafters.corpus import sample_corpus
from reference_impl.drafters.dataset import Batch, Exchanges
from reference_impl.drafters.measure import evaluate
from reference_impl.drafters.reduced import (
    ReducedVocabLlama,
    build_reduced_draft,
    load_reduced_draft,
    save_reduced_draft,
)

CHUNK = 512  # positions scored at once: their laws over the reduced vocabulary fit the cache


def initial_draft(target: LlamaForCausalLM, vocabulary: torch.Tensor) -> ReducedVocabLlama:
    """Return a draft made of the target's first layer, last layer and final norm."""
    draft = build_reduced_draft(target, vocabulary)
    for layer, source in zip(draft.model.layers, (0, -1), strict=True):
        layer.load_state_dict(target.model.layers[source].state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    return draft


def distance(
    states: torch.Tensor, batch: Batch, head: torch.Tensor, mix: float
) -> tuple[torch.Tensor, dict[str, float]]:
    """Measure how far the draft's law q is from the target's law p, with the gradient.

    The loss is KL(p || q) + mix * (1 - sum min(p, q)), the mean over positions; the second
    term is the probability of a rejection. The gradient is written out, chunk by chunk,
    because autograd would keep several [n, R] float32 tensors.

    Parameters
    ----------
    states : torch.Tensor
        The draft's head input at the scored positions, [n, hidden], detached.
    batch : Batch
        The target's side.
    head : torch.Tensor
        Head rows of the reduced vocabulary, [R, hidden], in the dtype to multiply in.
    mix : float
        Weight of the rejection probability.

    Returns
    -------
    torch.Tensor
        Gradient of the loss by `states`, same shape.
    dict
        Means over positions: `loss`, `agreement` (equal top-1 token), `overlap`.
    """
    gradient = torch.empty_like(states)
    sums = torch.zeros(3, dtype=torch.float64)
    for i in range(0, len(states), CHUNK):
        here = slice(i, i + CHUNK)
        log_p = F.linear(batch.hidden[here].to(head.dtype), head).float()
        log_p -= batch.log_z[here, None]
        log_q = F.linear(states[here].to(head.dtype), head).float().log_softmax(dim=-1)
        agreement = log_p.argmax(-1) == log_q.argmax(-1)
        p, q = log_p.exp(), log_q.exp()
        overlap = torch.minimum(p, q).sum(-1)
        loss = (p * (log_p - log_q)).sum(-1) + mix * (1 - overlap)
        slope = q * p.sum(-1, keepdim=True) - p
        if mix:
            short = torch.where(q < p, q, 0.0)  # where more q is more overlap
            slope += mix * (q * short.sum(-1, keepdim=True) - short)
        gradient[here] = F.linear(slope.to(head.dtype), head.T)
        sums += torch.stack([loss.sum(), agreement.sum(), overlap.sum()])
    means = (sums / len(states)).tolist()
    return gradient / len(states), dict(zip(("loss", "agreement", "overlap"), means, strict=True))


def make_optimisers(
    draft: ReducedVocabLlama, args: argparse.Namespace
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the norms; the rest is frozen."""
    if not hasattr(torch.optim, "Muon"):
        raise SystemExit("training the draft needs torch >= 2.9, which has torch.optim.Muon")
    draft.requires_grad_(False)
    own = [*draft.model.layers.parameters(), *draft.model.norm.parameters()]
    for parameter in own:
        parameter.requires_grad_(True)
    matrices = [p for p in own if p.ndim == 2]
    norms = [p for p in own if p.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=args.lr, weight_decay=args.weight_decay),
        torch.optim.AdamW(norms, lr=args.norm_lr, weight_decay=0.0),
    ]


def rate(step: int, steps: int, warm_up: int) -> float:
    """Learning-rate factor: linear warm-up, then linear decay to zero at `steps`."""
    return min((step + 1) / warm_up, (steps - step) / (steps - warm_up))


class Training:
    """State of one training run: draft, optimisers, step, CPU seconds and log."""

    def __init__(self, target: LlamaForCausalLM, data: Exchanges, args: argparse.Namespace) -> None:
        self.data, self.args = data, args
        special = AutoTokenizer.from_pretrained(args.target).all_special_ids
        self.draft = initial_draft(target, data.frequent_tokens(args.vocabulary, special))
        self.optimisers = make_optimisers(self.draft, args)
        self.rates = [optimiser.param_groups[0]["lr"] for optimiser in self.optimisers]
        self.head = self.draft.lm_head.weight.to(torch.bfloat16)
        self.order: tuple[int, list[list[int]]] = (-1, [])
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.log = args.out / "train_log.jsonl"
        self.file = args.work / "checkpoint.pt"

    def rows(self) -> list[int]:
        """Return the exchanges of the current step."""
        per_epoch = len(self.data.epoch(self.args.rows, 0)) if not self.order[1] else 0
        epoch, i = divmod(self.step, per_epoch or len(self.order[1]))
        if epoch != self.order[0]:
            self.order = (epoch, self.data.epoch(self.args.rows, self.args.seed + epoch))
        return self.order[1][i]

    def update(self) -> dict[str, float]:
        """Do one step; return its figures."""
        start = time.process_time()
        batch = self.data.batch(self.rows())
        with torch.autocast("cpu", torch.bfloat16):
            states = self.draft.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        states = states[batch.scored]
        gradient, figures = distance(states.detach(), batch, self.head, self.args.mix)
        states.backward(gradient)
        factor = rate(self.step, self.args.steps, self.args.warm_up)
        for optimiser, full in zip(self.optimisers, self.rates, strict=True):
            optimiser.param_groups[0]["lr"] = full * factor
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        self.tokens += len(states)
        self.seconds += time.process_time() - start
        return figures

    def run(self) -> None:
        """Train to the last step, with a checkpoint every `save_seconds` seconds."""
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
        """Write the checkpoint and export the draft as it is now."""
        state = {
            "counts": (self.step, self.tokens, self.seconds),
            "draft": self.draft.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        partial = self.file.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self.file)
        save_reduced_draft(self.draft, self.args.out)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one; else start with an empty log."""
        lines: list[str] = []
        if self.file.exists():
            state = torch.load(self.file)
            self.step, self.tokens, self.seconds = state["counts"]
            self.draft.load_state_dict(state["draft"])
            for optimiser, own in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(own)
            lines = self.log.read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] <= self.step]
        self.log.write_text("".join(kept))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="target in HF format")
    parser.add_argument("--work", type=Path, required=True, help="corpus and checkpoint go here")
    parser.add_argument("--out", type=Path, required=True, help="draft and its figures go here")
    parser.add_argument("--tokens", type=int, default=500_000, help="size of the corpus, at least")
    parser.add_argument("--batch", type=int, default=128, help="exchanges of one corpus shard")
    parser.add_argument("--held-out", type=int, default=2, help="last shards, for evaluation")
    parser.add_argument("--vocabulary", type=int, default=8192, help="tokens the draft may say")
    parser.add_argument("--steps", type=int, default=1450)
    parser.add_argument("--warm-up", type=int, default=30, help="steps to full learning rate")
    parser.add_argument("--rows", type=int, default=8, help="exchanges of one step")
    parser.add_argument("--lr", type=float, default=0.05, help="Muon, for the matrices")
    parser.add_argument("--norm-lr", type=float, default=0.002, help="AdamW, for the norms")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--mix", type=float, default=1.0, help="weight of the rejection term")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--corpus-threads", type=int, default=2, help="to sample the corpus")
    parser.add_argument("--threads", type=int, default=1, help="to train and evaluate")
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--save-seconds", type=float, default=180)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(args.corpus_threads)
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    small = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    folder = args.work / "corpus"
    shards = sample_corpus(small, tokenizer, folder, args.tokens, args.batch, args.seed)
    torch.set_num_threads(args.threads)
    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.float32)
    training = Training(target, Exchanges(shards[: -args.held_out]), args)
    training.resume()
    training.run()
    draft = load_reduced_draft(target, args.out)
    figures = evaluate(draft, Exchanges(shards[-args.held_out :]))
    figures["training_cpu_seconds"] = round(training.seconds)
    (args.out / "evaluation.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
