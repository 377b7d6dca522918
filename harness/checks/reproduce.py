"""Python that shows a failure in a fresh process: what came, and what should have.

A reproduction is a list of calls on one decoder, or the check itself run again where only many
outputs together are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch

from harness import oracle
from harness.contract import Completion, Request, Sampling, validate
from harness.models import ModelPair
from reference_impl import autoregressive
from reference_impl.randomness import Seeded

if TYPE_CHECKING:
    from harness.checks.subject import Subject

Struct = TypeVar("Struct", bound=msgspec.Struct)


class Call(msgspec.Struct, frozen=True):
    """One call of a decoder.

    Attributes
    ----------
    requests : tuple of Request
        Decoded by one ``generate``.
    pieces : int or None
        Instead, ``stream`` the only request, and close it after that many pieces.
    """

    requests: tuple[Request, ...]
    pieces: int | None = None


def plain_decoding(pair: ModelPair, request: Request) -> Completion:
    """What a greedy request gives, token by token from the uncached target."""
    laws = autoregressive.model_laws(pair.target, request, pair.vocab_size)
    return autoregressive.decode(laws, request, Seeded(None))


def show(pair: ModelPair, requests: Sequence[Request], completions: Sequence[Completion]) -> None:
    """Print every answer, and below it what plain decoding gives.

    Under a sampled answer stands the probability of each of its tokens: none may be 0.
    """
    for request, completion in zip(requests, completions, strict=True):
        print("got     ", completion)
        try:
            validate(request, pair)
        except ValueError as error:
            print("expected", f"ValueError: {error}")
            continue
        if request.sampling.greedy:
            print("expected", plain_decoding(pair, request))
        else:
            _, p = oracle.laws_along(pair.target, request, completion.tokens, pair.vocab_size)
            print("p       ", p[torch.arange(len(p)), completion.tokens].tolist())


def repro(subject: Subject, requests: Sequence[Request]) -> str:
    """Python that decodes these requests together."""
    return program(subject, [Call(tuple(requests))])


def program(subject: Subject, calls: Sequence[Call]) -> str:
    """Python that makes these calls on one decoder, and shows what the last one answers."""
    *before, last = calls
    lines = [line for call in before for line in _made(call)]
    if last.pieces is None:
        lines += [f"requests = {_list(last.requests)}"]
        lines += ["show(pair, requests, decoder.generate(requests))"]
    else:
        lines += [
            f"request = {source(last.requests[0])}",
            f"pieces = islice(decoder.stream(request), {last.pieces})",
            "tokens = [token for piece in pieces for token in piece]",
            "show(pair, [request], [Completion(tokens=tokens, finish_reason='length')])",
        ]
    return _with_imports([*loaded(subject), *lines])


def source(request: Request) -> str:
    """Python of a request, without what is at its default."""
    sampling = _tidy(request.sampling, Sampling())
    plain = Request(prompt=request.prompt, max_new_tokens=request.max_new_tokens)
    return repr(_tidy(msgspec.structs.replace(request, sampling=sampling), plain))


def _tidy(given: Struct, default: Struct) -> Struct:
    """Equal values made the very ones that a repr leaves out."""
    names = [n for n in given.__struct_fields__ if getattr(given, n) == getattr(default, n)]
    return msgspec.structs.replace(given, **{name: getattr(default, name) for name in names})


def _made(call: Call) -> Iterator[str]:
    """One call whose answer is right."""
    if call.pieces is None:
        yield f"decoder.generate({_list(call.requests)})"
        return
    yield f"stream = decoder.stream({source(call.requests[0])})"
    yield from ["next(stream)"] * call.pieces
    yield "stream.close()"


def _list(requests: Sequence[Request]) -> str:
    """A list of requests, each on a line of its own where there are several."""
    if len(requests) == 1:
        return f"[{source(requests[0])}]"
    return "\n".join(["[", *(f"    {source(request)}," for request in requests), "]"])


def rerun(subject: Subject, check: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Python that runs a check again, with the same budget and so with the same seeds."""
    given = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    name = check.__name__
    lines = [
        f"from {check.__module__} import {name}",
        *loaded(subject),
        f"subject = Subject(decoder, pair, {subject.name!r}, {subject.options!r})",
        f"print({name}(subject, {', '.join(given)}))",
    ]
    return _with_imports(lines)


def loaded(subject: Subject) -> list[str]:
    """Lines that build the pair and the decoder."""
    arguments = subject.loaded_with or {"name": subject.pair.name}
    return [
        f"pair = load_pair({', '.join(f'{k}={v!r}' for k, v in arguments.items())})",
        f"decoder = load_decoder({subject.name!r}, pair, {subject.options!r})",
    ]


MODULES = {
    "islice": "itertools",
    "inf": "math",
    "load_decoder": "harness.adapters",
    "Budget": "harness.checks.budget",
    "show": "harness.checks.reproduce",
    "Subject": "harness.checks.subject",
    "Completion": "harness.contract",
    "Grammar": "harness.contract",
    "Request": "harness.contract",
    "Sampling": "harness.contract",
    "load_pair": "harness.models",
}
"""Where the names come from that a reproduction may use."""


def _with_imports(lines: Sequence[str]) -> str:
    code = "\n".join(lines)
    used = [name for name in MODULES if re.search(rf"\b{name}\b", code)]
    modules = dict.fromkeys(MODULES[name] for name in used)
    imports = [
        f"from {module} import {', '.join(name for name in used if MODULES[name] == module)}"
        for module in modules
    ]
    return "\n".join([*imports, code])
