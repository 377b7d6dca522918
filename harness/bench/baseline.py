"""Whether a speedup is over a fair plain arm: what speculation can give at the most, and others.

A speedup is a ratio, and grows as well where its plain arm is slowed down, or where the other arm
knew the answer. Neither shows in the outputs. It shows in what a block of drafts can save, and
beside the plain arms of other decoders on the same prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from harness.bench.summary import cost, plain_cost, prompt_ratios, timeable
from harness.record import GenerationRow

ABOVE = 1.2  # times what the target calls can give: clocks are not exact
SLOWER = 1.5  # times another plain arm's seconds per token on the same prompts


def of_baselines(
    rows: Sequence[GenerationRow], decoders: Sequence[str], draft_tokens: int | None
) -> Iterator[str]:
    """Doubts about each decoder's plain arm, one sentence each.

    Parameters
    ----------
    draft_tokens : int or None
        K, the most that one round may draft; None for any number.
    """
    timed = [row for row in rows if timeable(row)]
    arms = {name: _plain_costs([r for r in timed if r.decoder == name]) for name in decoders}
    for name in decoders:
        yield from _too_fast([row for row in timed if row.decoder == name], draft_tokens)
        yield from _slow(name, arms)


def _too_fast(rows: Sequence[GenerationRow], draft_tokens: int | None) -> Iterator[str]:
    """A speedup that is more than its target calls can give.

    A call that verifies a block costs no less than one that gives a single token, so seconds per
    token fall by no more than tokens per target call (Leviathan et al. 2023, theorem 3.8 at c = 0).
    """
    most = {id(row): _tokens_per_call(row, draft_tokens) for row in rows}
    known = [row for row in rows if most[id(row)]]
    if not known:
        return
    excess = geometric_mean(prompt_ratios(known, plain_cost, lambda r: cost(r) * most[id(r)]))
    if excess > ABOVE:
        yield (
            f"{known[0].decoder}: its speedup is {excess:.2f} times what its target calls can "
            "give: its plain arm is slower than it need be, or its other arm knew the answer"
        )


def _tokens_per_call(row: GenerationRow, draft_tokens: int | None) -> float:
    """As the decoder counts, else a whole block; 0 where neither is known."""
    calls = row.counts.get("target_calls") or len(row.drafted or ())
    if calls:
        return len(row.tokens) / calls
    return draft_tokens + 1 if draft_tokens else 0.0


PlainCosts = dict[tuple[str, str], float]


def _slow(name: str, arms: dict[str, PlainCosts]) -> Iterator[str]:
    """A plain arm that is much slower than another decoder's."""
    own = arms[name]
    slower = {}
    for other, costs in arms.items():
        if other != name and (shared := own.keys() & costs.keys()):
            slower[other] = geometric_mean(own[at] / costs[at] for at in sorted(shared))
    fastest = max(slower, key=slower.__getitem__, default="")
    if fastest and slower[fastest] > SLOWER:
        yield (
            f"{name}: its plain arm takes {slower[fastest]:.2f} times as long as that of {fastest} "
            "on the same prompts: its speedup is over a slow baseline"
        )


def _plain_costs(rows: Sequence[GenerationRow]) -> PlainCosts:
    """Plain seconds per token by task and prompt, the best of its repeats."""
    found: PlainCosts = {}
    for row in rows:
        at = (row.task, row.prompt_id)
        found[at] = min(plain_cost(row), found.get(at, plain_cost(row)))
    return found
