"""transformers' assisted generation where the assistant has another tokenizer.

The pair's draft with its ids renumbered: the same model, in words of its own order, and one word
more. Both tokenizers write an id as a word, so that text says nothing that ids do not.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from harness.adapters.transformers import TransformersDecoder, fixed_k
from harness.contract import Request
from harness.models import ModelPair

SEED = 1


def universal(pair: ModelPair, shared: bool = False) -> TransformersDecoder:
    """Assisted generation with the pair's draft, whose tokenizer is another one.

    Parameters
    ----------
    shared : bool
        Whether greedy and sampled calls share one assistant. In transformers 5.24 the first sampled
        call prunes its head for good, after which greedy calls fail (docs/findings.md).
    """
    order = torch.randperm(pair.vocab_size, generator=torch.Generator().manual_seed(SEED)).tolist()
    greedy = _renumbered(pair.draft, order)
    sampling = greedy if shared else _renumbered(pair.draft, order)
    target_tokenizer = _words(range(pair.vocab_size))
    draft_tokenizer = _words([*order, pair.vocab_size])  # a word that the target does not know

    def speculation(request: Request) -> dict[str, Any]:
        return {
            "assistant_model": fixed_k(greedy if request.sampling.greedy else sampling, request),
            "tokenizer": target_tokenizer,
            "assistant_tokenizer": draft_tokenizer,
        }

    return TransformersDecoder(pair, speculation)


def _renumbered(model: PreTrainedModel, order: Sequence[int]) -> PreTrainedModel:
    """A copy of the model in which id i means what ``order[i]`` did, with one id more."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in {other.get_input_embeddings().weight, other.get_output_embeddings().weight}:
            weight[: len(order)] = weight[order]  # once, where they are tied
    other.resize_token_embeddings(len(order) + 1, mean_resizing=False)
    return other


def _words(ids: Sequence[int]) -> PreTrainedTokenizerFast:
    """A tokenizer in which the i-th word is the ``ids[i]``-th number."""
    vocabulary = {f"<{number}>": i for i, number in enumerate(ids)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=f"<{ids[0]}>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
