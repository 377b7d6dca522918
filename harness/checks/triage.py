"""A greedy divergence looked at closely: how far apart are the two logits, however computed?

Floating point addition is not associative: a target that scores several positions in one call
gives other last digits than one that scores them one by one. At the very place of a divergence
the gap between the two tokens is computed from the whole text, from one token after a cached
prefix, from a block of K + 1 after it, and in float64. What these differ by is the noise here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness import oracle
from harness.contract import Request
from harness.models import ModelPair
from reference_impl import sampling
from reference_impl.cache import fit_vocabulary

LARGEST_DOUBLE = 1_000_000_000  # parameters of a model that is copied in float64


@torch.inference_mode()
def gaps(
    pair: ModelPair, request: Request, output: Sequence[int], found: oracle.Divergence
) -> dict[str, float]:
    """Logit of the expected token minus that of the emitted one, by how it was computed.

    Parameters
    ----------
    output : sequence of int
        What was emitted, ``found`` in it.

    Returns
    -------
    dict of str to float
        In the target's dtype: ``whole text``, ``one token`` and ``K + 1 tokens`` after a cached
        prefix; and ``float64``, unless the model is too large to be copied.
    """
    position = found.position
    before = len(request.prompt) + position
    text = [*request.prompt, *output[: position + request.draft_tokens]]
    ids = torch.tensor([text], device=pair.device)
    alone, starts = ids[:, :before], sorted({0, before - 1})
    rows = {
        "whole text": pair.target(input_ids=alone, use_cache=False).logits[0, -1],
        "one token": oracle.in_blocks(pair.target, alone, starts)[before - 1],
        "K + 1 tokens": oracle.in_blocks(pair.target, ids, starts)[before - 1],
    }
    if (double := _in_float64(pair)) is not None:
        rows["float64"] = double(input_ids=alone, use_cache=False).logits[0, -1]

    parameters = sampling.Parameters.of([request], pair.vocab_size, pair.device)
    emitted = [list(output[:position])]
    history = sampling.History.of([request], emitted, pair.vocab_size, pair.device)
    new = torch.tensor([position], device=pair.device)

    def gap(logits: Tensor) -> float:
        logits = fit_vocabulary(logits.unsqueeze(0), pair.vocab_size)
        wide = logits if logits.dtype is torch.float64 else logits.float()
        scores = sampling.process(wide, parameters, history, new)[0]
        return float(scores[found.expected] - scores[found.got])

    return {name: gap(logits) for name, logits in rows.items()}


def spread(found: dict[str, float]) -> float:
    """What the ways of computing a gap differ by."""
    return max(found.values()) - min(found.values())


_doubles: dict[str, PreTrainedModel] = {}


def _in_float64(pair: ModelPair) -> PreTrainedModel | None:
    if pair.target.num_parameters() > LARGEST_DOUBLE:
        return None
    key = pair.fingerprint()
    if key not in _doubles:
        _doubles.clear()  # one at a time: it takes twice the memory of the target
        _doubles[key] = copy.deepcopy(pair.target).double()
    return _doubles[key]
