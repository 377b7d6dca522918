"""``python -m reference_impl.rules``: what each acceptance rule keeps, on the same drafted blocks.

Every figure is an expectation over the coins, given the block: the rules are compared without their
noise. Text and blocks are those of token-wise rejection. How far a rule's law for the next token is
from the target's is its total variation distance, averaged over the same places: 0 for an exact
rule, and for typical acceptance, which is lossy, what it costs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec
import torch
from tabulate import tabulate
from torch import Tensor
from tqdm import tqdm

from harness import record
from harness.bench.estimate import Estimate, mean
from harness.bench.tasks import TASKS
from harness.bench.workload import Prompt, load_workload
from harness.command_line import BadInput, Parser, refuse, require_positive
from harness.contract import Request, Sampling, validate
from harness.models import ModelPair, load_pair
from reference_impl.acceptance import TypicalAcceptance, chances, running_ratio
from reference_impl.drafters.model import ModelDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal
from reference_impl.speculative import residual

RULES = ("token-wise", "block", "matching", "typical")
LEAST_TEMPERATURE = 1e-6  # of a request that samples


@dataclass
class Kept:
    """Of the blocks of one prompt: expected accepted drafts, and the distance of the next law."""

    accepted: dict[str, list[float]] = field(default_factory=lambda: {rule: [] for rule in RULES})
    distance: dict[str, list[float]] = field(default_factory=lambda: {rule: [] for rule in RULES})


class Watching(SpeculativeEngine):
    """Token-wise rejection that tells what every rule makes of its blocks."""

    kept: Kept

    def judge(
        self, p: Tensor, proposal: Proposal, count: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Look, and judge as always."""
        drafts = proposal.tokens.shape[1]
        if drafts and int(count[0]) == drafts and proposal.q is not None:
            found = expected_lengths(p[:1], proposal.q[:1], proposal.tokens[:1])
            for rule in RULES:
                self.kept.accepted[rule].append(found[rule])
            for rule, law in next_laws(p[0, 0].double(), proposal.q[0, 0].double()).items():
                off = float((law - p[0, 0].double()).abs().sum()) / 2
                self.kept.distance[rule].append(off)
        return super().judge(p, proposal, count, u)


def expected_lengths(p: Tensor, q: Tensor, drafts: Tensor) -> dict[str, float]:
    """Accepted drafts of one block [1, K], on average over the coins, by rule.

    Parameters
    ----------
    p : Tensor [1, K + 1, V]
    q : Tensor [1, K, V]
    """
    at = drafts.unsqueeze(2)
    p_drafts = p[:, :-1].gather(2, at).squeeze(2).double()
    ratios = (p_drafts / q.gather(2, at).squeeze(2).double()).clamp(max=1)
    count = torch.full((1,), drafts.shape[1], device=p.device)
    ends = chances(p, q, running_ratio(p, q, drafts), count)
    stays = (1 - ends).flip(1).cumprod(1).flip(1)  # no coin from i on falls well
    return {
        "token-wise": float(ratios.cumprod(1).sum()),
        "block": float((1 - stays).sum()),
        "matching": float(p_drafts.cumprod(1).sum()),
        "typical": float(
            (p_drafts > TypicalAcceptance.enough(p[:, :-1].double())).long().cumprod(1).sum()
        ),
    }


def next_laws(p: Tensor, q: Tensor) -> dict[str, Tensor]:
    """The law [V] of the token after a text, by rule, where one token is drafted from q."""
    kept = torch.minimum(p, q)
    left = residual(p, q)
    exact = kept + (1 - kept.sum()) * left / left.sum().clamp_min(1e-300)
    typical = q * (p > TypicalAcceptance.enough(p))
    return {
        "token-wise": exact,
        "block": exact,  # of a single draft it is the same rule
        "matching": q * p + (1 - q) * p,
        "typical": typical + (1 - typical.sum()) * p,
    }


def measure(pair: ModelPair, prompts: Sequence[Prompt], request: Request) -> dict[str, list[Kept]]:
    """Decode the prompts; what was kept, by task."""
    engine = Watching(pair.target, ModelDrafter(pair.draft, pair.vocab_size), pair.vocab_size)
    found: dict[str, list[Kept]] = {}
    for number, prompt in enumerate(tqdm(prompts, disable=None)):
        engine.kept = Kept()
        engine.generate([msgspec.structs.replace(request, prompt=prompt.ids, seed=number)])
        if engine.kept.accepted["block"]:
            found.setdefault(prompt.task, []).append(engine.kept)
    return found


def rows(found: dict[str, list[Kept]]) -> list[dict[str, object]]:
    """One row a task."""
    table = []
    for task, kept in found.items():
        row: dict[str, object] = {
            "task": task,
            "prompts": len(kept),
            "blocks": sum(len(of.accepted["block"]) for of in kept),
        }
        for rule in RULES:
            row[rule] = mean([fmean(of.accepted[rule]) for of in kept]).value
        gains = [fmean(of.accepted["block"]) - fmean(of.accepted["token-wise"]) for of in kept]
        row["block - token-wise"] = mean(gains)
        for rule in ("token-wise", "typical"):
            row[f"distance, {rule}"] = fmean(fmean(of.distance[rule]) for of in kept)
        table.append(row)
    return table


def render(table: Sequence[dict[str, object]]) -> str:
    """As a table; '-' where a single prompt gives no interval."""

    def cell(name: str, value: object) -> str:
        if isinstance(value, Estimate):
            if value.low is None or value.high is None:
                return f"{value.value:.4f} -"
            return f"{value.value:.4f} [{value.low:.4f}, {value.high:.4f}]"
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if name == "distance, token-wise" else f"{value:.3f}"

    cells = [[cell(name, value) for name, value in row.items()] for row in table]
    return tabulate(cells, list(table[0]) if table else [], disable_numparse=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write where asked to."""
    given = _parser().parse_args(arguments)
    try:
        require_positive(given, "prompts", "max_new_tokens", "draft_tokens")
        if given.max_new_tokens < 2:
            raise BadInput(
                f"--max-new-tokens is {given.max_new_tokens}: ask for at least 2, as the last "
                "token is never drafted"
            )
        if not LEAST_TEMPERATURE <= given.temperature < math.inf:
            raise BadInput(
                f"--temperature is {given.temperature}: the rules are for sampling, above 0: give "
                f"at least {LEAST_TEMPERATURE}"
            )
        if given.json:
            record.check_writable("--json", given.json)
        pair = load_pair(given.pair)
        prompts = load_workload(pair, TASKS, given.prompts, given.max_new_tokens)
        request = Request(
            prompt=(0,),
            max_new_tokens=given.max_new_tokens,
            draft_tokens=given.draft_tokens,
            sampling=Sampling(temperature=given.temperature),
            eos=pair.eos,
        )
        validate(request, pair)
    except ValueError as error:  # a pair, a workload or a file that cannot be had
        return refuse(error)
    table = rows(measure(pair, prompts, request))
    print(f"{pair.name}, K = {given.draft_tokens}, temperature {given.temperature:g}:", end=" ")
    print("accepted drafts a block, and total variation distance of the next token's law")
    print(render(table))
    if given.json:
        written = record.provenance() | {"rows": table}
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m reference_impl.rules", __doc__)
    add = parser.add_argument
    add("--pair", default="smollm2-135m")
    add("--prompts", type=int, default=8, help="of each task (default: %(default)s)")
    add("--max-new-tokens", type=int, default=64)
    add("--draft-tokens", type=int, default=4, metavar="K")
    add("--temperature", type=float, default=1.0)
    add("--json", type=Path, metavar="FILE", help="write the rows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
