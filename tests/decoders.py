"""Little decoders that are wrong or hostile on purpose: the reference, changed in one respect.

Importable as ``decoders:name`` where this directory is on the path, as under pytest.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import torch

from harness.adapters import load_decoder
from harness.adapters.reference import EngineDecoder, PageDecoder, engine
from harness.contract import CAPABILITIES, Completion, Request
from harness.models import ModelPair, load_pair
from reference_impl import speculative
from reference_impl.autoregressive import Laws
from reference_impl.randomness import Randomness
from reference_impl.speculative import Propose

ALL = frozenset(CAPABILITIES) - {"declared_lossy", "exact_law"}
Generate = Callable[[EngineDecoder, list[Request]], Any]


class Wrong:
    """What ``generate`` makes of the reference and the requests; plain requests stay right."""

    capabilities = ALL

    def __init__(self, pair: ModelPair, generate: Generate, plain: bool = False) -> None:
        self._right = engine(pair)
        self._generate = generate
        self._plain = plain  # whether plain decoding is wrong as well

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        if self._plain or any(request.speculate for request in requests):
            return cast(list[Completion], self._generate(self._right, list(requests)))
        return self._right.generate(requests)


def asked(**changes: Any) -> Generate:
    """Answers requests that are not quite those that were made."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        return right.generate([msgspec.structs.replace(r, **changes) for r in requests])

    return generate


def answered(change: Callable[[Completion], Any]) -> Generate:
    """Changes every completion on its way out."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Any]:
        return [change(completion) for completion in right.generate(requests)]

    return generate


def other_last_token(completion: Completion) -> Completion:
    tokens = [*completion.tokens[:-1], completion.tokens[-1] ^ 1]
    return msgspec.structs.replace(completion, tokens=tokens)


def last_token(pair: ModelPair) -> Wrong:
    """The last token is another one, in its speculative arm."""
    return Wrong(pair, answered(other_last_token))


def last_token_in_both_arms(pair: ModelPair) -> Wrong:
    """The last token is another one, with speculation or without."""
    return Wrong(pair, answered(other_last_token), plain=True)


def without_eos(pair: ModelPair) -> Wrong:
    """The EOS that ends an output is left out of it."""

    def drop(completion: Completion) -> Completion:
        if completion.finish_reason == "eos" and len(completion.tokens) > 1:
            return msgspec.structs.replace(completion, tokens=completion.tokens[:-1])
        return completion

    return Wrong(pair, answered(drop))


def always_length(pair: ModelPair) -> Wrong:
    """The finish reason is always ``length``."""
    return Wrong(pair, answered(lambda c: msgspec.structs.replace(c, finish_reason="length")))


def longer(pair: ModelPair, by: int = 1) -> Wrong:
    """Outputs are longer than asked for, or shorter."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        changed = [
            msgspec.structs.replace(r, max_new_tokens=max(1, r.max_new_tokens + by))
            for r in requests
        ]
        return right.generate(changed)

    return Wrong(pair, generate)


def shorter(pair: ModelPair) -> Wrong:
    """Outputs are too short for what they were asked for, by one or two tokens."""
    return longer(pair, by=-1)


def seedless(pair: ModelPair) -> Wrong:
    """Seeds are ignored."""
    return Wrong(pair, asked(seed=None))


def restarted(pair: ModelPair) -> Wrong:
    """Requests without a seed all get the same one."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        return right.generate([msgspec.structs.replace(r, seed=r.seed or 0) for r in requests])

    return Wrong(pair, generate)


def filterless(pair: ModelPair) -> Wrong:
    """top_k, top_p and min_p are ignored."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        none = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        changed = [
            msgspec.structs.replace(r, sampling=msgspec.structs.replace(r.sampling, **none))
            for r in requests
        ]
        return right.generate(changed)

    return Wrong(pair, generate)


def mixed_rows(pair: ModelPair) -> Wrong:
    """The prompts of a batch's first two rows are exchanged."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        if len(requests) > 1:
            one, two = requests[:2]
            requests[0] = msgspec.structs.replace(one, prompt=two.prompt)
            requests[1] = msgspec.structs.replace(two, prompt=one.prompt)
        return right.generate(requests)

    return Wrong(pair, generate)


def answers_all(pair: ModelPair) -> Wrong:
    """What makes no sense is answered by token 0."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        try:
            return right.generate(requests)
        except ValueError:
            return [Completion(tokens=[0], finish_reason="length") for _ in requests]

    return Wrong(pair, generate)


def crashes_on_nonsense(pair: ModelPair) -> Wrong:
    """What makes no sense is found out too late."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        try:
            return right.generate(requests)
        except ValueError:
            raise IndexError("list index out of range") from None

    return Wrong(pair, generate)


def raises(pair: ModelPair) -> Wrong:
    """Every request raises."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        raise RuntimeError("out of memory")

    return Wrong(pair, generate, plain=True)


def too_few(pair: ModelPair) -> Wrong:
    """The last request is not answered."""
    return Wrong(pair, lambda right, requests: right.generate(requests)[:-1], plain=True)


def beyond_the_vocabulary(pair: ModelPair) -> Wrong:
    """The last id of every answer is none of the vocabulary's."""
    changed = answered(lambda c: msgspec.structs.replace(c, tokens=[*c.tokens[:-1], 64]))
    return Wrong(pair, changed, plain=True)


def nothing_at_all(pair: ModelPair) -> Wrong:
    """Every answer is None."""
    return Wrong(pair, answered(lambda c: None), plain=True)


def nan_logprobs(pair: ModelPair) -> Wrong:
    """Log probabilities are NaN."""
    nan = float("nan")
    changed = answered(
        lambda c: msgspec.structs.replace(c, logprobs=c.logprobs and [nan] * len(c.logprobs))
    )
    return Wrong(pair, changed, plain=True)


def sorted_rows(pair: ModelPair) -> Wrong:
    """Answers come sorted by their length."""

    def generate(right: EngineDecoder, requests: list[Request]) -> list[Completion]:
        return sorted(right.generate(requests), key=lambda c: len(c.tokens))

    return Wrong(pair, generate, plain=True)


def draft_alone(pair: ModelPair) -> Wrong:
    """The draft decodes, in both arms."""
    swapped = dataclasses.replace(pair, target=pair.draft, draft=pair.target)
    return Wrong(swapped, asked(), plain=True)


def wrong_theta(pair: ModelPair) -> Wrong:
    """A target converted with another base of its rotary frequencies, in both arms."""
    target = copy.deepcopy(pair.target)
    rotary: Any = target.get_submodule("model.rotary_emb")
    number = rotary.inv_freq.numel()
    rotary.inv_freq = 1e5 ** -(torch.arange(number) / number)
    return Wrong(dataclasses.replace(pair, target=target), asked(), plain=True)


def cannot_be_built(pair: ModelPair) -> Wrong:
    """Its factory crashes."""
    raise RuntimeError("no licence found")


def refuses_the_pair(pair: ModelPair) -> Wrong:
    """Its factory wants another pair."""
    raise ValueError("only for large models")


def declares_little(pair: ModelPair) -> Wrong:
    """Greedy decoding, and nothing else."""
    decoder = Wrong(pair, asked())
    decoder.capabilities = frozenset({"greedy"})
    return decoder


class RaisingPage(PageDecoder):
    """The page, out of order."""

    @staticmethod
    def rule(*_: Any) -> Completion:
        raise KeyError("weights")


class MutePage(PageDecoder):
    """The page, answering nothing."""

    @staticmethod
    def rule(*_: Any) -> Completion:
        return Completion(tokens=[], finish_reason="length")


class MisnamedEnd(PageDecoder):
    """The page, with ``stop`` for every finish reason: wrong on every table, soon shrunk."""

    @staticmethod
    def rule(
        target: Laws, propose: Propose, request: Request, randomness: Randomness
    ) -> Completion:
        completion = speculative.decode(target, propose, request, randomness)
        return msgspec.structs.replace(completion, finish_reason="stop")


class Elsewhere:
    """A server that loaded its own models: it does not look at the pair it is given."""

    def __init__(self, name: str) -> None:
        self._behind = load_decoder(name, load_pair("tiny-bad"))
        self.capabilities = self._behind.capabilities - {"stream"}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return self._behind.generate(requests)


def elsewhere(pair: ModelPair, name: str = "reference") -> Elsewhere:
    return Elsewhere(name)
