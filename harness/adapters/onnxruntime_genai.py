"""onnxruntime-genai: plain, with its n-gram drafts, with a draft model; one request at a time.

EOS ids are the model's there, not the request's: a model is loaded for every set of them, and a
few are kept. ``stop`` is not declared, stop strings are for its batch engine; nor ``penalties``, of
which it has only one, nor ``logprobs``: it gives logits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.adapters.converted import converted
from harness.adapters.onnx_models import onnx_model
from harness.contract import Completion, Metrics, Request, validate
from harness.pair_files import OnDisk

_CAPABILITIES = frozenset(
    {
        "greedy",
        "sampling",
        "top_k",
        "top_p",
        "min_new_tokens",
        "eos",
        "seed",
        "stream",
        "metrics",
        "plain",
        "validates",
    }
)
KEPT = 4  # loaded models
MOST_DRAFTS = 16  # that it takes in a round


class OrtDecoder:
    """A ``Generator`` for every request.

    Parameters
    ----------
    pair : OnDisk
    max_ngram : int
        Length of the n-grams that are looked for; 0 takes the pair's draft.
    """

    def __init__(self, pair: OnDisk, max_ngram: int) -> None:
        self._pair, self._max_ngram = pair, max_ngram
        names = ("onnxruntime", "onnxruntime-genai")
        self.versions = {name: metadata.version(name) for name in names}
        self._model = functools.lru_cache(KEPT)(self._load)
        self.capabilities = _CAPABILITIES | (set() if max_ngram else {"model_draft"})
        try:
            self._target = self._speculative = onnx_model(pair.file("target", "hf"))
            if not max_ngram:
                self._speculative = joined(self._target, onnx_model(pair.file("draft", "hf")))
        except NotImplementedError:  # its builder does not know the architecture
            self.capabilities = frozenset()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self._generate(request) for request in requests]

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request, and yield its ids as they come."""
        return _pieces(self._generator(request))

    def _generate(self, request: Request) -> Completion:
        generator = self._generator(request)
        tokens = [token for piece in _pieces(generator) for token in piece]
        return Completion(
            tokens=tokens,
            finish_reason="eos" if tokens and tokens[-1] in request.eos else "length",
            metrics=metrics(generator.get_speculative_stats()),
        )

    def _generator(self, request: Request) -> Any:
        from onnxruntime_genai import Generator, GeneratorParams

        validate(request, self._pair)
        draft = request.speculate and not self._max_ngram
        model = self._model(self._speculative if draft else self._target, request.eos)
        parameters = GeneratorParams(model)
        parameters.set_search_options(**arguments(request, self._pair.vocab_size))
        if request.speculate:
            ngram = {"ngram_size": self._max_ngram} if self._max_ngram else {}
            k = min(request.draft_tokens, MOST_DRAFTS)
            parameters.set_speculative_options(max_draft_tokens=k, **ngram)
        generator = Generator(model, parameters)
        generator.append_tokens(list(request.prompt))
        return generator

    def _load(self, directory: Path, eos: tuple[int, ...]) -> Any:
        from onnxruntime_genai import Config, Model

        config = Config(str(directory))
        if eos:  # they are added to the one of the file, which no output has
            config.overlay(json.dumps({"model": {"eos_token_id": list(eos)}}))
        return Model(config)


def _pieces(generator: Any) -> Iterator[list[int]]:
    while not generator.is_done():
        generator.generate_next_token()
        yield generator.get_next_tokens().tolist()


def arguments(request: Request, vocab_size: int) -> dict[str, Any]:
    """A request in the words of onnxruntime-genai's search options."""
    s, prompt = request.sampling, len(request.prompt)
    found: dict[str, Any] = {
        "max_length": prompt + request.max_new_tokens,
        "min_length": prompt + s.min_new_tokens if s.min_new_tokens else 0,
        "do_sample": not s.greedy,
    }
    if not s.greedy:
        found |= {
            "temperature": s.temperature,
            "top_k": s.top_k or vocab_size,
            "top_p": s.top_p,
            # 31 bits are what it takes.
            "random_seed": random.getrandbits(31) if request.seed is None else request.seed % 2**31,
        }
    return found


def metrics(stats: dict[str, Any]) -> Metrics:
    """What the generator counted; without speculation it counts nothing."""
    calls = stats["target_forward_passes"] + stats["standard_fallback_steps"]
    return Metrics(
        target_calls=calls or None,
        drafted=stats["draft_tokens_evaluated"],
        accepted=stats["draft_tokens_accepted"],
        acceptance_rate=stats["acceptance_rate"],
    )


def joined(target: Path, draft: Path) -> Path:
    """A speculative model of two, with links to their files, beside the target."""
    digest = hashlib.sha256(str(draft).encode()).hexdigest()[:12]
    return converted(target, f"speculative-{digest}", functools.partial(_join, draft))


def _join(draft: Path, target: Path, directory: Path) -> None:
    config, other = (json.loads((d / "genai_config.json").read_text()) for d in (target, draft))
    for name, role in (("target", target), ("draft", draft)):
        (directory / name).symlink_to(role)
    model = config["model"]
    model["type"] = "speculative"
    model["decoder"]["filename"] = os.path.join("target", "model.onnx")
    model["draft"] = other["model"]["decoder"] | {"filename": os.path.join("draft", "model.onnx")}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).symlink_to(target / name)
    (directory / "genai_config.json").write_text(json.dumps(config))


def draft(pair: OnDisk) -> OrtDecoder:
    """Drafts from the pair's draft."""
    return OrtDecoder(pair, 0)


def ngram(pair: OnDisk, max_ngram: int = 3) -> OrtDecoder:
    """Drafts that continue the latest tokens as they went on before."""
    return OrtDecoder(pair, max_ngram)
