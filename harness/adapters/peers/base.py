"""What adapters of small libraries share: models from files, seeds, ids where text is expected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from itertools import groupby
from typing import Any

import torch

from harness.contract import Completion, FinishReason, Request
from harness.pair_files import OnDisk, Role, UnsupportedPairError

GREEDY = frozenset({"greedy"})
SAMPLED = frozenset({"sampling", "seed"})  # the seed of torch's global generator, or their own


class Peer(ABC):
    """One request at a time; its randomness is torch's global generator.

    Attributes
    ----------
    package : str
        Its name on PyPI.
    crops : bool
        Whether it rolls the cache of the target back, which recurrent models have none of.
    target, draft : transformers models
    """

    package: str
    capabilities: frozenset[str]
    crops = True

    def __init__(self, pair: OnDisk) -> None:
        names = (self.package, "torch", "transformers")
        self.versions = {name: metadata.version(name) for name in names}
        self.context_length, self.vocab_size = pair.context_length, pair.vocab_size
        self.target, self.draft = (load(pair, role) for role in ("target", "draft"))
        if self.crops and self.target.config.model_type == "mamba":
            raise UnsupportedPairError(
                f"{self.package} rolls a key-value cache back, and a recurrent model has none"
            )

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode the requests one by one."""
        return [self.seeded(request) for request in requests]

    def seeded(self, request: Request) -> Completion:
        """Decode one request; its seed is for no other one after it."""
        with torch.random.fork_rng(enabled=request.seed is not None), torch.no_grad():
            if request.seed is not None:
                torch.manual_seed(request.seed)
            return self.one(request)

    @abstractmethod
    def one(self, request: Request) -> Completion:
        """Decode one request."""


class BatchedPeer(Peer):
    """Requests that one call can hold are decoded together; not seeded ones, if it has one seed.

    Attributes
    ----------
    seeds : bool
        Whether every row of a call has a seed of its own.
    """

    seeds = False

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode group by group."""

        def group_of(row: int) -> Any:
            seeded = requests[row].seed is not None and not self.seeds
            return row if seeded else -1, self.alike(requests[row])

        answers: dict[int, Completion] = {}
        for _, group in groupby(sorted(range(len(requests)), key=group_of), key=group_of):
            rows = list(group)
            if len(rows) == 1:
                answers[rows[0]] = self.seeded(requests[rows[0]])
            else:
                with torch.no_grad():
                    together = self.together([requests[row] for row in rows])
                answers |= zip(rows, together, strict=True)
        return [answers[row] for row in range(len(requests))]

    def one(self, request: Request) -> Completion:
        """Decode one request."""
        return self.together([request])[0]

    @abstractmethod
    def alike(self, request: Request) -> tuple[Any, ...]:
        """What all requests of a call must have in common."""

    @abstractmethod
    def together(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode requests that are alike in one call."""


def load(pair: OnDisk, role: Role) -> Any:
    """A transformers model, whose ``generate`` samples from the whole law unless told otherwise."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        pair.file(role, "hf"), dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    model.generation_config.top_k = 0  # transformers' own default is 50
    return model.eval().requires_grad_(False)


def randomised(module: torch.nn.Module, scale: float) -> torch.nn.Module:
    """A drafter with random weights, also where it starts from zeros: they would hide faults."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            width = weight.shape[-1] ** 0.5 if weight.dim() > 1 else 1
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale / width)
    return module.eval().requires_grad_(False)


def ids(request: Request) -> torch.Tensor:
    """The prompt, [1, n]."""
    return torch.tensor([request.prompt])


def completion(tokens: Sequence[int], request: Request, **counts: Any) -> Completion:
    """What the library said, as it said it."""
    ended = bool(tokens) and tokens[-1] in request.eos
    reason: FinishReason = "eos" if ended else "length"
    return Completion(tokens=list(tokens), finish_reason=reason, **counts)


@contextmanager
def tempered(temperature: float, *models: Any) -> Iterator[None]:
    """Let models give the logits of that temperature, for libraries that know none."""

    def scale(_: Any, __: Any, output: Any) -> Any:
        output.logits = output.logits / temperature
        return output

    hooks = [model.register_forward_hook(scale) for model in models if temperature not in (0, 1)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class AnyOf:
    """Equal to any of these ids, for libraries that ask for the one EOS id."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = tuple(ids)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, torch.Tensor):
            return torch.isin(other, torch.tensor(self._ids))
        return other in self._ids

    __hash__ = None  # type: ignore[assignment]


def one_eos(request: Request) -> Any:
    """The request's EOS as one id; None if it has none."""
    return request.eos[0] if len(request.eos) == 1 else AnyOf(request.eos) if request.eos else None


class IdTokenizer:
    """A tokenizer whose text is the ids, for libraries that take text only."""

    unk_token_id = -1

    pad_token_id = 0

    def __init__(self, eos: Any = None) -> None:
        self.eos_token_id = eos

    def encode(self, prompt: Sequence[int], return_tensors: str = "pt") -> torch.Tensor:
        """The prompt as it is, [1, n]."""
        return torch.tensor([list(prompt)])

    def apply_chat_template(self, messages: Any, **_: Any) -> Any:
        """The content of the only message."""
        return messages[0]["content"]

    def convert_tokens_to_ids(self, _: str) -> int:
        """No special token is known."""
        return self.unk_token_id

    def __call__(self, prompts: Any, return_tensors: str = "pt") -> Any:
        """The only prompt, or the one in a list, as ``input_ids``."""
        from transformers import BatchEncoding

        prompt = self.encode(prompts if isinstance(prompts[0], int) else prompts[0])
        return BatchEncoding({"input_ids": prompt, "attention_mask": torch.ones_like(prompt)})

    def decode(self, tokens: Any, skip_special_tokens: bool = False) -> str:
        """Ids in words."""
        return " ".join(str(int(token)) for token in tokens)


def from_text(text: str) -> list[int]:
    """Ids from the words of ``IdTokenizer``."""
    return [int(word) for word in text.split()]
