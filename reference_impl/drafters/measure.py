"""How well a draft predicts its target on held-out exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from reference_impl.drafters.corpus import TASKS
from reference_impl.drafters.dataset import Batch, Exchanges
from reference_impl.drafters.reduced import ReducedVocabLlama

LENGTHS = (1, 2, 3, 4, 5)
CHUNK = 256  # positions scored at once, over the full vocabulary


@dataclass(frozen=True)
class Trace:
    """One answer: per position, top-1 agreement (bool) and overlap sum min(p, q) (float32)."""

    task: str
    temperature: float
    agreement: torch.Tensor
    overlap: torch.Tensor


@torch.no_grad()
def compare(draft: ReducedVocabLlama, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return agreement [n] bool and overlap [n] float32 at the scored positions, T = 1."""
    states = draft.model(input_ids=batch.ids, use_cache=False).last_hidden_state[batch.scored]
    rows = draft.get_input_embeddings().weight  # tied: the target's whole head
    vocabulary = draft.lm_head.vocabulary
    agreement, overlap = [], []
    for state, hidden in zip(
        torch.split(states, CHUNK),
        torch.split(batch.targets(batch.scored).hidden, CHUNK),
        strict=True,
    ):
        log_p = F.linear(hidden.to(rows.dtype), rows)
        log_q = F.linear(state, draft.lm_head.weight)
        agreement.append(log_p.argmax(-1) == vocabulary[log_q.argmax(-1)])
        p, q = log_p.softmax(-1)[:, vocabulary], log_q.softmax(-1)
        overlap.append(torch.minimum(p, q).sum(-1))
    return torch.cat(agreement), torch.cat(overlap)


def trace(draft: ReducedVocabLlama, data: Exchanges, size: int = 16) -> list[Trace]:
    """Compare draft and target along every answer of `data`."""
    order = sorted(range(len(data)), key=data.lengths.__getitem__)
    traces = []
    for i in range(0, len(order), size):
        rows = order[i : i + size]
        batch = data.batch(rows)
        counts = batch.scored.sum(dim=1).tolist()
        parts = (torch.split(part, counts) for part in compare(draft, batch))
        for row, agreement, overlap in zip(rows, *parts, strict=True):
            heat = round(float(data.temperatures[row]), 3)
            traces.append(Trace(TASKS[int(data.tasks[row])], heat, agreement, overlap))
    return traces


def greedy_accepted(agreement: Sequence[bool], length: int) -> list[int]:
    """Decode one greedy answer with blocks of `length` draft tokens; accepted ones by block.

    Exact, not an estimate: up to the first disagreement the draft's context is the answer.
    """
    accepted = []
    start = 0
    while start + length <= len(agreement):
        count = [*agreement[start : start + length], False].index(False)
        accepted.append(count)
        start += count + 1
    return accepted


def sampled_accepted(overlap: torch.Tensor, length: int) -> list[float]:
    """Expected accepted tokens of a block of `length`, from each start of one answer.

    Token k of a block is accepted with probability `overlap` if those before it were; the
    contexts are the target's samples.
    """
    if len(overlap) < length:
        return []
    chain: list[float] = overlap.unfold(0, length, 1).cumprod(dim=1).sum(dim=1).tolist()
    return chain


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def summary(traces: Sequence[Trace]) -> dict[str, Any]:
    """Figures of some answers, at T = 0 (greedy ones) and at T = 1 (sampled at T = 1)."""

    def means(chosen: Sequence[Trace]) -> dict[str, Any]:
        agreement = [float(x) for t in chosen for x in t.agreement.tolist()]
        overlap = [x for t in chosen for x in t.overlap.tolist()]
        return {
            "answers": len(chosen),
            "positions": len(agreement),
            "agreement": _mean(agreement),
            "overlap": _mean(overlap),
        }

    greedy = [t for t in traces if t.temperature == 0]
    sampled = [t for t in traces if t.temperature == 1]
    result = {"all": means(traces), "T=0": means(greedy), "T=1": means(sampled)}
    result["T=0"]["accepted"] = {
        str(k): _mean([x for t in greedy for x in greedy_accepted(t.agreement.tolist(), k)])
        for k in LENGTHS
    }
    result["T=1"]["accepted"] = {
        str(k): _mean([x for t in sampled for x in sampled_accepted(t.overlap, k)]) for k in LENGTHS
    }
    return result


def evaluate(draft: ReducedVocabLlama, data: Exchanges) -> dict[str, Any]:
    """Summarise the draft over `data`: all tasks together, then task by task.

    `agreement` and `overlap` are means over answer positions; `accepted` is the mean number
    of draft tokens accepted per block, by block length, without the target's own token.
    """
    traces = trace(draft, data)
    by_task = {task: summary([t for t in traces if t.task == task]) for task in TASKS}
    return {"all tasks": summary(traces), **by_task}
