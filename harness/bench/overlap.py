"""How often drafts may be accepted along the timed texts: sum min(p, q) at every token.

The theory that acceptance by position is compared with. Greedy laws are all on one token: the sum
is 1 where both models say the same, 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from harness.bench.row_figures import timeable
from harness.bench.workload import Prompt
from harness.checks.acceptance import beta_and_gap
from harness.contract import Completion, Decoder, Request, Sampling
from harness.models import ModelPair
from harness.record import GenerationRow

CAPABILITY = "model_draft"  # of decoders whose drafts are draws from the pair's draft
DIGITS = 5


def with_overlap(
    rows: Iterable[GenerationRow],
    pair: ModelPair,
    decoders: Mapping[str, Decoder],
    prompts: Iterable[Prompt],
    temperature: float,
) -> Iterator[GenerationRow]:
    """The same rows, with ``overlap`` where the drafts are those of the pair's draft.

    Each is scored when it has been timed, before the next one is.
    """
    ids = {(prompt.task, prompt.prompt_id): prompt.ids for prompt in prompts}
    for row in rows:
        if CAPABILITY in decoders[row.decoder].capabilities and timeable(row):
            found = _overlap(pair, row, ids[row.task, row.prompt_id], temperature)
            yield msgspec.structs.replace(row, overlap=found)
        else:
            yield row


def _overlap(
    pair: ModelPair, row: GenerationRow, prompt: tuple[int, ...], temperature: float
) -> list[float] | None:
    """None where a model gives logits that are no numbers."""
    sampling = Sampling(temperature=temperature)
    request = Request(prompt=prompt, max_new_tokens=len(row.tokens), sampling=sampling)
    completion = Completion(tokens=row.tokens, finish_reason="length")
    try:
        (found,) = beta_and_gap(pair, [request], [completion])
    except ValueError:
        return None
    return [round(float(value), DIGITS) for value in found[:, 0]]
