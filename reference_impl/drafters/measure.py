"""How well a drafter predicts its target on held-out exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from reference_impl.drafters.corpus import TASKS
from reference_impl.drafters.dataset import Batch, Exchanges
from reference_impl.drafters.training import Learner

LENGTHS = (1, 2, 3, 4, 5)
CHUNK = 256  # positions scored at once, over the full vocabulary


@dataclass(frozen=True)
class Trace:
    """One answer, position by position, [predictions, n] each.

    Attributes
    ----------
    agreement : torch.Tensor, bool
        Whether the drafter's likeliest token is the target's; the k-th row as the k-th token of a
        block.
    overlap : torch.Tensor, float32
        sum min(p, q), T = 1.
    """

    task: str
    temperature: float
    agreement: torch.Tensor
    overlap: torch.Tensor


@torch.no_grad()
def compare(
    learner: Learner, head: torch.Tensor, vocabulary: torch.Tensor, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Agreement and overlap at the scored positions, [predictions, n]."""
    targets = torch.split(batch.targets(batch.scored).hidden, CHUNK)
    agreement, overlap = [], []
    for states in learner.predictions(batch):
        agreed, shared = [], []
        for state, hidden in zip(torch.split(states[batch.scored], CHUNK), targets, strict=True):
            log_p = F.linear(hidden.to(head.dtype), head)
            log_q = F.linear(state.to(head.dtype), head[vocabulary])
            agreed.append(log_p.argmax(-1) == vocabulary[log_q.argmax(-1)])
            p, q = log_p.softmax(-1)[:, vocabulary], log_q.softmax(-1)
            shared.append(torch.minimum(p, q).sum(-1))
        agreement.append(torch.cat(agreed))
        overlap.append(torch.cat(shared))
    return torch.stack(agreement), torch.stack(overlap)


def trace(
    learner: Learner, head: torch.Tensor, vocabulary: torch.Tensor, data: Exchanges, size: int = 16
) -> list[Trace]:
    """Compare drafter and target along every answer of `data`."""
    order = sorted(range(len(data)), key=data.lengths.__getitem__)
    traces = []
    for i in range(0, len(order), size):
        rows = order[i : i + size]
        batch = data.batch(rows)
        counts = batch.scored.sum(dim=1).tolist()
        found = compare(learner, head, vocabulary, batch)
        parts = (torch.split(part, counts, dim=1) for part in found)
        for row, agreement, overlap in zip(rows, *parts, strict=True):
            heat = round(float(data.temperatures[row]), 3)
            traces.append(Trace(TASKS[int(data.tasks[row])], heat, agreement, overlap))
    return traces


def along(rows: torch.Tensor, length: int) -> torch.Tensor:
    """Of [predictions, n], what a block of `length` from each of S starts meets, [S, length].

    A drafter with one prediction uses it for every token of a block.
    """
    if len(rows) == 1:
        return rows[0].unfold(0, length, 1)
    starts = rows.shape[1] - length + 1
    return torch.stack([rows[k, k : k + starts] for k in range(length)], 1)


def greedy_accepted(agreement: torch.Tensor, length: int) -> list[int]:
    """Decode one greedy answer with blocks of `length` draft tokens; accepted ones by block.

    Exact, not an estimate: up to the first disagreement the draft's context is the answer.
    """
    if agreement.shape[1] < length:
        return []
    kept: list[int] = along(agreement, length).long().cumprod(1).sum(1).tolist()
    accepted, start = [], 0
    while start < len(kept):
        accepted.append(kept[start])
        start += kept[start] + 1
    return accepted


def sampled_accepted(overlap: torch.Tensor, length: int) -> list[float]:
    """Expected accepted tokens of a block of `length`, from each start of one answer.

    Token k of a block is accepted with probability `overlap` if those before it were; the
    contexts are the target's samples.
    """
    if overlap.shape[1] < length:
        return []
    chain: list[float] = along(overlap, length).cumprod(dim=1).sum(dim=1).tolist()
    return chain


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _means(parts: Sequence[torch.Tensor]) -> list[float]:
    """Of [predictions, n] tensors over all positions, one for each prediction."""
    return [round(x, 4) for x in torch.cat(list(parts), 1).mean(1).tolist()] if parts else []


def summary(traces: Sequence[Trace]) -> dict[str, Any]:
    """Figures of some answers, at T = 0 (greedy ones) and at T = 1 (sampled at T = 1)."""

    def means(chosen: Sequence[Trace]) -> dict[str, Any]:
        agreement = [t.agreement.float() for t in chosen]
        overlap = [t.overlap for t in chosen]
        return {
            "answers": len(chosen),
            "positions": sum(part.shape[1] for part in agreement),
            "agreement": _means(agreement),
            "overlap": _means(overlap),
        }

    greedy = [t for t in traces if t.temperature == 0]
    sampled = [t for t in traces if t.temperature == 1]
    result = {"all": means(traces), "T=0": means(greedy), "T=1": means(sampled)}
    rows = len(traces[0].agreement) if traces else 1
    lengths = LENGTHS if rows == 1 else LENGTHS[:rows]
    result["T=0"]["accepted"] = {
        str(k): _mean([x for t in greedy for x in greedy_accepted(t.agreement, k)]) for k in lengths
    }
    result["T=1"]["accepted"] = {
        str(k): _mean([x for t in sampled for x in sampled_accepted(t.overlap, k)]) for k in lengths
    }
    return result


def evaluate(
    learner: Learner, head: torch.Tensor, vocabulary: torch.Tensor, data: Exchanges
) -> dict[str, Any]:
    """Summarise a drafter over `data`: all tasks together, then task by task.

    `agreement` and `overlap` are means over answer positions, one for each prediction of the
    drafter; `accepted` is the mean number of draft tokens accepted per block, by block length,
    without the target's own token.

    Parameters
    ----------
    learner : Learner
    head : torch.Tensor
        The target's, [V, hidden].
    vocabulary : torch.Tensor
        Ids that the drafter may say, [R].
    """
    traces = trace(learner, head, vocabulary, data)
    by_task = {task: summary([t for t in traces if t.task == task]) for task in TASKS}
    return {"all tasks": summary(traces), **by_task}
