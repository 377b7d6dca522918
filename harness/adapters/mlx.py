"""MLX-LM's ``stream_generate``, plain and with a draft model.

Batch 1, as its speculative decoding is. Its own chain of samplers filters before the temperature;
a sampler is a callable there, so this gives it one that puts the same filters in the contract's
order. Penalties are its repetition penalty, and two processors that look at the output alone: they
count on the tokens that MLX-LM hands to every processor. ``stop`` is not declared: sequences are
the business of its server. Log probabilities are made of the vectors that it returns, which are
those before the sampler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from harness.contract import Completion, Request, Round, Sampling
from harness.pair_files import OnDisk, Role, UnsupportedPairError

_CAPABILITIES = frozenset(
    {
        "greedy",
        "sampling",
        "top_k",
        "top_p",
        "min_p",
        "penalties",
        "logit_bias",
        "eos",
        "seed",
        "logprobs",
        "stream",
        "rounds",
        "plain",
    }
)
_ALL = 1 << 30  # tokens that a penalty looks back
Processor = Callable[[Any, Any], Any]  # tokens, logits -> logits
Sampler = Callable[[Any], Any]  # log probabilities -> tokens


class MlxDecoder:
    """``stream_generate`` on a pair.

    Parameters
    ----------
    pair : OnDisk
    as_is : bool
        Loads the models as MLX-LM reads their configuration by itself. It knows nothing of
        ``rope_parameters``, where transformers 5 keeps the base of the rotations, and takes 10,000.
    """

    capabilities = _CAPABILITIES

    def __init__(self, pair: OnDisk, as_is: bool = False) -> None:
        from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache
        from mlx_lm.utils import load_model

        self.versions = {name: metadata.version(name) for name in ("mlx-lm", "mlx-cpu")}

        def load(role: Role) -> Any:
            directory = pair.file(role, "hf")
            try:
                model, _ = load_model(
                    directory, model_config={} if as_is else older_config(directory)
                )
            except (TypeError, ValueError) as error:
                raise UnsupportedPairError(f"MLX-LM cannot load the {role}: {error}") from None
            if not can_trim_prompt_cache(make_prompt_cache(model)):
                raise UnsupportedPairError(f"the {role}'s cache cannot be trimmed")
            return model

        self._target, self._draft = load("target"), load("draft")

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self._generate(request) for request in requests]

    def stream(self, request: Request) -> Iterator[list[int]]:
        """The tokens of one request, one by one."""
        for response in self._responses(request, self._target):
            yield [response.token]

    def _generate(self, request: Request) -> Completion:
        target = _Counted(self._target, len(request.prompt))
        responses = list(self._responses(request, target))
        law, logprobs = _filters(request.sampling), None
        if request.logprobs:
            logprobs = [law(r.logprobs[None])[0, r.token].item() for r in responses]
        return Completion(
            tokens=[response.token for response in responses],
            finish_reason="eos" if responses[-1].finish_reason == "stop" else "length",
            logprobs=logprobs,
            rounds=rounds([response.from_draft for response in responses], target.drafted)
            if request.speculate
            else None,
        )

    def _responses(self, request: Request, target: Any) -> Iterator[Any]:
        import mlx.core as mx
        from mlx_lm.generate import stream_generate

        draft = {"draft_model": self._draft, "num_draft_tokens": request.draft_tokens}
        with _seeded(request.seed):
            yield from stream_generate(
                target,
                _no_text(request.eos),
                mx.array(request.prompt),
                max_tokens=request.max_new_tokens,
                sampler=_sampler(request.sampling),
                logits_processors=_processors(request) or None,
                **(draft if request.speculate else {}),
            )


def older_config(directory: Path) -> dict[str, Any]:
    """The keys of a model's configuration that MLX-LM looks for under their older names."""
    config = json.loads((directory / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    return {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}


def rounds(from_draft: Sequence[bool], drafted: Sequence[int]) -> list[Round]:
    """Rounds from where each token came, and how many were drafted for each call of the target.

    A round ends with a token of the target's own, or with the output.
    """
    accepted = [0]
    for token in from_draft[:-1]:
        if token:
            accepted[-1] += 1
        else:
            accepted.append(0)
    accepted[-1] += from_draft[-1]
    return [Round(d, a) for d, a in zip(drafted, accepted, strict=True)]


class _Counted:
    """A target that takes note of how many drafts each call after the prompt verifies."""

    def __init__(self, model: Any, prompt: int) -> None:
        self._model, self._unread = model, prompt - 1
        self.drafted: list[int] = []

    def __call__(self, tokens: Any, **arguments: Any) -> Any:
        if self._unread > 0:
            self._unread -= tokens.shape[1]
        else:
            self.drafted.append(tokens.shape[1] - 1)
        return self._model(tokens, **arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Seed MLX's global generator for one request, and for no other one after it."""
    import mlx.core as mx

    if seed is None:
        yield
        return
    high, low = mx.random.state[0].tolist()  # the two halves of a seed that leads to this state
    mx.random.seed(seed)
    try:
        yield
    finally:
        mx.random.seed((high << 32) + low)


def _filters(sampling: Sampling) -> Callable[[Any], Any]:
    """Log probabilities -> those of the sampling law, in the contract's order."""
    import mlx.core as mx
    from mlx_lm import sample_utils as mlx

    def law(logprobs: Any) -> Any:
        if sampling.greedy:
            return logprobs
        logprobs = logprobs / sampling.temperature
        if 0 < sampling.top_k < logprobs.shape[-1]:
            logprobs = mlx.apply_top_k(logprobs, sampling.top_k)
        if sampling.top_p < 1:
            logprobs = mlx.apply_top_p(_normalised(logprobs), sampling.top_p)
        if sampling.min_p:
            logprobs = mlx.apply_min_p(logprobs, sampling.min_p)
        return _normalised(logprobs)

    def _normalised(logprobs: Any) -> Any:
        return logprobs - mx.logsumexp(logprobs, axis=-1, keepdims=True)

    return law


def _sampler(sampling: Sampling) -> Sampler:
    from mlx_lm import sample_utils as mlx

    if sampling.greedy:
        return cast(Sampler, mlx.make_sampler(temp=0))
    law = _filters(sampling)
    return lambda logprobs: mlx.categorical_sampling(law(logprobs), 1.0)


def _processors(request: Request) -> list[Processor]:
    from mlx_lm import sample_utils as mlx

    s, prompt = request.sampling, len(request.prompt)
    found: list[Processor] = mlx.make_logits_processors(
        logit_bias=s.logit_bias or None,
        repetition_penalty=s.repetition_penalty if s.repetition_penalty != 1 else None,
        repetition_context_size=_ALL,
    )

    def over_output(penalise: Processor) -> Processor:
        return lambda tokens, logits: penalise(tokens[prompt:], logits)

    if s.presence_penalty:
        found.append(over_output(mlx.make_presence_penalty(s.presence_penalty, _ALL)))
    if s.frequency_penalty:
        found.append(over_output(mlx.make_frequency_penalty(s.frequency_penalty, _ALL)))
    return found


def _no_text(eos: Sequence[int]) -> Any:
    """A tokenizer that ends outputs at these ids, and makes no text."""
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    class NoText:
        """A detokenizer whose pieces are empty."""

        last_segment = ""

        def __init__(self, tokenizer: Any) -> None: ...

        def reset(self) -> None: ...

        def add_token(self, token: int) -> None: ...

        def finalize(self) -> None: ...

    class Ids:
        """What the wrapper asks of a tokenizer."""

        eos_token_id = None
        chat_template = None

        def get_vocab(self) -> dict[str, int]:
            return {}

        def apply_chat_template(self) -> None: ...

    return TokenizerWrapper(Ids(), NoText, eos_token_ids=eos)


def draft(pair: OnDisk, as_is: bool = False) -> MlxDecoder:
    """Speculative decoding with the pair's draft."""
    return MlxDecoder(pair, as_is)
