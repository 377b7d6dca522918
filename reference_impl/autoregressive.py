"""Plain decoding: one token per call of the target. What "correct" means.

Uncached, batch 1. ``speculative.py`` has the same output law; ``engine.py`` is the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.contract import Completion, FinishReason, Request
from reference_impl.randomness import Randomness
from reference_impl.sampling import next_token_law

Laws = Callable[[Sequence[int], int], Tensor]
"""``laws(output, n)``: the laws [n, V] of the tokens that follow the n last prefixes of ``output``.

Row n-1 follows all of ``output``, row 0 follows it without its last n-1 tokens.
"""


def decode(target: Laws, request: Request, randomness: Randomness) -> Completion:
    """Decode one request a token at a time."""
    output: list[int] = []
    while True:
        output.append(randomness.choice(target(output, 1)[0]))
        if reason := finished(output, request):
            return Completion(tokens=output, finish_reason=reason)


def finished(output: Sequence[int], request: Request) -> FinishReason | None:
    """Why the output ends at its last token, or None where it goes on.

    Must be asked after every single token: an EOS in the middle of a block ends the output there.
    """
    if output[-1] in request.eos:
        return "eos"
    if any(tuple(output[-len(stop) :]) == stop for stop in request.stop):
        return "stop"
    if len(output) == request.max_new_tokens:
        return "length"
    return None


def model_laws(model: torch.nn.Module, request: Request, vocab: int) -> Laws:
    """Laws of a transformers causal LM under the request's sampling parameters.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    request : Request
    vocab : int
        Columns beyond it are padding of the output matrix, and are dropped.
    """
    device = next(model.parameters()).device

    @torch.inference_mode()
    def laws(output: Sequence[int], count: int) -> Tensor:
        ids = torch.tensor([[*request.prompt, *output]], device=device)
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=count).logits[0, :, :vocab]
        lengths = range(len(output) - count + 1, len(output) + 1)
        rows = zip(logits, lengths, strict=True)
        return torch.stack([next_token_law(row, request, output[:n]) for row, n in rows])

    return laws
