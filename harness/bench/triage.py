"""Why two greedy outputs differ: the target's own logits where they part.

Floating point addition is not associative, so a target that scores several positions in one call
gives logits that differ in their last digits from those of one position a call. Where the two best
tokens are closer than that, either is a right answer. How close that is, is measured. Tokens that
tie exactly, and stay so however they are computed, are no such case: noise does not part them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers import DynamicCache

from harness.models import ModelPair

PROBE_TOKENS = 64
PROBE_BLOCKS = (1, 4)  # one token a call, as plain decoding does; a few, as verification does
MARGIN = 2  # the noise is the largest of a sample, and the decoder's own kernels have theirs


@dataclass(frozen=True)
class Divergence:
    """Why two outputs differ.

    Attributes
    ----------
    kind : str
        ``near_tie``: both tokens are the target's best within its noise. ``fault``: the
        speculative output is wrong. ``error``: the plain output is not the target's either, so
        speculation is not to blame.
    message : str
    """

    kind: Literal["near_tie", "fault", "error"]
    message: str


Triage = Callable[[Sequence[int], Sequence[int], Sequence[int]], Divergence]


def make_triage(pair: ModelPair, probe: Sequence[int]) -> Triage:
    """A function (prompt, plain ids, speculative ids) -> Divergence for a pair.

    Parameters
    ----------
    pair : ModelPair
    probe : sequence of int
        Any text; the target's noise is measured on it, once, when it is first needed.
    """
    noise = functools.cache(lambda: noise_level(pair, probe[:PROBE_TOKENS]))
    return lambda prompt, plain, speculative: diagnose(pair, noise, prompt, plain, speculative)


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two outputs share from the start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def diagnose(
    pair: ModelPair,
    noise: Callable[[], float],
    prompt: Sequence[int],
    plain: Sequence[int],
    speculative: Sequence[int],
) -> Divergence:
    """Say why two greedy outputs differ."""
    at = common_prefix(plain, speculative)
    if at == min(len(plain), len(speculative)):
        return Divergence(
            "fault",
            f"{len(speculative)} tokens, plain decoding has {len(plain)}; the rest is equal",
        )
    logits = _logits(pair, [*prompt, *plain[:at]])[-1]
    gap_plain = float(logits.max() - logits[plain[at]])
    gap_speculative = float(logits.max() - logits[speculative[at]])
    gap = max(gap_plain, gap_speculative)
    where = f"new token {at + 1} is {speculative[at]}, plain decoding has {plain[at]}"
    evidence = f"(noise {noise():.2g})"
    if gap < MARGIN * noise():
        return Divergence("near_tie", f"{where}, logits {gap:.2g} apart {evidence}")
    if gap_plain and gap_plain >= MARGIN * noise():
        what = f"plain decoding is not the target's: {where}"
        return Divergence("error", f"{what}, {gap_plain:.2g} below the best logit {evidence}")
    better = f"{gap_speculative:.2g} logits better" if gap else "exactly tied, and the first choice"
    return Divergence("fault", f"{where}, which is {better} {evidence}")


def noise_level(pair: ModelPair, ids: Sequence[int]) -> float:
    """How far the gap of the two best logits moves when a text is scored whole or in blocks.

    The largest change over all positions and ``PROBE_BLOCKS``. Not of all logits: those of
    unlikely tokens move more, and decide nothing.
    """
    whole = _logits(pair, ids)
    best = whole.topk(2).indices

    def gaps(logits: Tensor) -> Tensor:
        first, second = logits.gather(1, best).unbind(1)
        return first - second

    blocks = [_logits(pair, ids, block) for block in PROBE_BLOCKS]
    return max(float((gaps(whole) - gaps(logits)).abs().max()) for logits in blocks)


@torch.inference_mode()
def _logits(pair: ModelPair, ids: Sequence[int], block: int | None = None) -> Tensor:
    """Logits [T, V], float32, in one call, or in cached calls of ``block`` tokens."""
    target = pair.target
    row = torch.tensor([list(ids)], device=pair.device)
    step = block or len(ids)
    renamed = "cache" in inspect.signature(target.forward).parameters  # in transformers 5.2x
    cache = {"cache" if renamed else "past_key_values": DynamicCache(config=target.config)}
    logits = []
    for start in range(0, len(ids), step):
        output = target(input_ids=row[:, start : start + step], use_cache=True, **cache)
        logits.append(output.logits[0, :, : pair.vocab_size].float())
    return torch.cat(logits)
