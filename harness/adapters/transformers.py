"""transformers' own ``generate``: plain, with an assistant model, early exit, prompt lookup.

Batch 1, as transformers' assisted generation is; its randomness is torch's global generator.
``stop`` is not declared: stopping criteria are asked once a round, after a whole block was
appended, so a stop sequence of ids inside an accepted block goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from harness.contract import Completion, Request, Round, validate
from harness.models import ModelPair
from reference_impl.autoregressive import finished

_CAPABILITIES = frozenset(
    {
        "greedy",
        "sampling",
        "top_k",
        "top_p",
        "min_p",
        "min_new_tokens",
        "logit_bias",
        "eos",
        "seed",
        "rounds",
        "plain",
        "validates",
    }
)


class TransformersDecoder:
    """``generate`` with given speculation options.

    Parameters
    ----------
    pair : ModelPair
    speculation : callable
        Request -> keyword arguments of ``generate`` that switch speculation on.
    """

    capabilities = _CAPABILITIES

    def __init__(self, pair: ModelPair, speculation: Callable[[Request], dict[str, Any]]) -> None:
        self._pair = pair
        self._speculation = speculation
        logging.set_verbosity_error()  # it warns about its own assisted path at every call

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self._generate(request) for request in requests]

    def _generate(self, request: Request) -> Completion:
        pair = self._pair
        validate(request, pair)
        ids = torch.tensor([request.prompt], device=pair.device)
        widest = max(int(m.config.get_text_config().vocab_size) for m in (pair.target, pair.draft))
        arguments = _sampling(request) | (self._speculation(request) if request.speculate else {})
        with _calls_of(pair.target) as calls, _seeded(request.seed):
            output = pair.target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.max_new_tokens,
                eos_token_id=list(request.eos) or None,
                pad_token_id=0,
                suppress_tokens=list(range(pair.vocab_size, widest)) or None,  # padding columns
                **arguments,
            )[0].tolist()
        tokens = output[len(request.prompt) :]
        return Completion(
            tokens=tokens,
            finish_reason=(finished(tokens, request) if tokens else None) or "length",
            rounds=_rounds(calls, len(request.prompt), len(output)) if request.speculate else None,
        )


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Seed torch's global generator for one request, and for no other one after it."""
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


@contextmanager
def _calls_of(model: PreTrainedModel) -> Iterator[list[tuple[int, int]]]:
    """Collect (tokens already cached, tokens fed) of every call of a whole model."""
    calls: list[tuple[int, int]] = []
    config = model.config.get_text_config()
    layers = config.num_hidden_layers

    def note(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if config.num_hidden_layers < layers:
            return  # early exit: it drafts
        cache = named.get("cache") or named.get("past_key_values")  # renamed in 5.2x
        ids = named["input_ids"] if "input_ids" in named else inputs[0]
        calls.append((cache.get_seq_length() if cache is not None else 0, ids.shape[1]))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _rounds(calls: Sequence[tuple[int, int]], prompt: int, total: int) -> list[Round]:
    """Drafted and accepted tokens per target call, from how far the text was at each call.

    A call feeds the last committed token and the drafts: all tokens before that one are cached.
    """
    committed = [max(cached + 1, prompt) for cached, _ in calls] + [total]
    rounds = []
    for (cached, fed), (before, after) in zip(calls, pairwise(committed), strict=True):
        drafted = cached + fed - before
        rounds.append(Round(drafted, min(drafted, max(0, after - before - 1))))
    return rounds


def _sampling(request: Request) -> dict[str, Any]:
    s = request.sampling
    arguments: dict[str, Any] = {"do_sample": not s.greedy}
    if not s.greedy:
        arguments |= {"temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p}
        if s.min_p:
            arguments["min_p"] = s.min_p
    if s.min_new_tokens:
        arguments["min_new_tokens"] = s.min_new_tokens
    if s.logit_bias:
        arguments["sequence_bias"] = {(token,): float(bias) for token, bias in s.logit_bias.items()}
    return arguments


def assisted(pair: ModelPair) -> TransformersDecoder:
    """Assisted generation with the pair's draft, K fixed, no confidence threshold."""
    return TransformersDecoder(
        pair, lambda request: {"assistant_model": fixed_k(pair.draft, request)}
    )


def fixed_k(assistant: PreTrainedModel, request: Request) -> PreTrainedModel:
    """The assistant, told to draft as many tokens as the request says."""
    config = assistant.generation_config
    config.num_assistant_tokens = request.draft_tokens
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    return assistant


def early_exit(pair: ModelPair, layers: int = 1) -> TransformersDecoder:
    """Assisted generation with the target's own first layers as the draft."""
    most = int(pair.target.config.get_text_config().num_hidden_layers)
    if not 1 <= layers < most:
        raise ValueError(f"layers is {layers}: this target exits after 1 to {most - 1}")

    def speculation(request: Request) -> dict[str, Any]:
        fixed_k(pair.target, request)
        return {"assistant_early_exit": layers}

    return TransformersDecoder(pair, speculation)


def prompt_lookup(pair: ModelPair, max_ngram: int = 3) -> TransformersDecoder:
    """Assisted generation with prompt lookup."""

    def speculation(request: Request) -> dict[str, Any]:
        return {
            "prompt_lookup_num_tokens": request.draft_tokens,
            "max_matching_ngram_size": max_ngram,
        }

    return TransformersDecoder(pair, speculation)
