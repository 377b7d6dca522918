"""A plain function as a decoder: ``build = decoder(my_generate, "greedy", "eos")``.

Needs the contract and nothing else, so that it works in an engine's own environment too.
"""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.contract import CAPABILITIES, Completion, FinishReason, Request, Sampling

FIELDS = tuple(f for f in Request.__struct_fields__ if f not in ("prompt", "sampling"))
PARAMETERS = Sampling.__struct_fields__
OF_THE_PAIR = ("target", "draft")
NAMES = (*FIELDS, *PARAMETERS, *OF_THE_PAIR, "pair", "request")
# What a function that can do this has to be told.
NEEDS: Mapping[str, Sequence[str]] = {
    "sampling": ("temperature",),
    "penalties": ("repetition_penalty", "presence_penalty", "frequency_penalty"),
    "plain": ("speculate",),
    **{name: (name,) for name in ("top_k", "top_p", "min_p", "min_new_tokens", "logit_bias")},
    **{name: (name,) for name in ("grammar", "eos", "stop", "seed", "logprobs")},
}
NEEDS_A_CLASS = ("batch", "stream", "exact_law")


class CallableDecoder:
    """A function behind the contract, one request at a time.

    Parameters
    ----------
    function : callable
    names : sequence of str
        Its parameters but the first, which is the prompt.
    pair : ModelPair or PairFiles
    options : mapping
        Handed on with every request.
    capabilities : frozenset of str
    versions : mapping
    """

    def __init__(
        self,
        function: Callable[..., Any],
        names: Sequence[str],
        pair: Any,
        options: Mapping[str, Any],
        capabilities: frozenset[str],
        versions: Mapping[str, str],
    ) -> None:
        self._function, self._names, self._pair = function, names, pair
        self._options = dict(options)
        self.capabilities = capabilities
        self.versions = dict(versions)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Call the function for each request."""
        return [self._generate(request) for request in requests]

    def _generate(self, request: Request) -> Completion:
        arguments = {name: self._value(name, request) for name in self._names}
        answer = self._function(list(request.prompt), **arguments, **self._options)
        if isinstance(answer, Completion):
            return answer
        tokens = _ids(answer, _name(self._function))
        return Completion(tokens=tokens, finish_reason=finish_reason(tokens, request))

    def _value(self, name: str, request: Request) -> Any:
        if name == "request":
            return request
        if name == "pair":
            return self._pair
        if name in OF_THE_PAIR:
            return getattr(self._pair, name)
        return getattr(request.sampling if name in PARAMETERS else request, name)


def decoder(
    generate: Callable[..., Any], *capabilities: str, versions: Mapping[str, str] | None = None
) -> Callable[..., CallableDecoder]:
    """A factory for ``--decoder module:name``, from a function that decodes one request.

    Parameters
    ----------
    generate : callable
        Its first parameter is the prompt, a list of ids. Others get, by their name, a field of the
        request (``max_new_tokens``, ``eos``, ``stop``, ``seed``, ``speculate``, ``draft_tokens``,
        ``logprobs``), a sampling parameter (``temperature``, ``top_k``, ...), what the pair calls
        ``target`` and ``draft``, or the whole ``request`` or ``pair``; and what
        ``--decoder-option`` names. It returns the new ids, the EOS or stop sequence that ended
        them included, or a ``Completion``.
    *capabilities : str
        What it can do, of ``harness.contract.CAPABILITIES``.
    versions : mapping, optional
        For the record.

    Raises
    ------
    ValueError
        If the function cannot be called so, or is not told what it would need to do as declared.
    """
    declared = frozenset(capabilities)
    for name in sorted(declared - CAPABILITIES.keys()):
        raise ValueError(f"unknown capability {name!r}{_near(name, tuple(CAPABILITIES))}")
    for name in NEEDS_A_CLASS:
        if name in declared:
            raise ValueError(f"{name!r} is beyond a plain function: write a class with it")
    function = _name(generate)
    parameters = list(inspect.signature(generate).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ValueError(f"{function} takes no prompt: its first parameter is a list of ids")
    others = {p.name: p for p in parameters[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    known = [name for name in others if name in NAMES]
    if "max_new_tokens" not in known and "request" not in known:
        raise ValueError(f"{function} is not told when to end: give it a parameter max_new_tokens")
    if "request" not in known:
        for name in sorted(declared & NEEDS.keys()):
            if missing := [need for need in NEEDS[name] if need not in known]:
                raise ValueError(
                    f"{function} declares {name!r}, and takes no parameter {', '.join(missing)}"
                )

    def build(pair: Any, **options: bool | int | float | str) -> CallableDecoder:
        """The function on a pair."""
        for name in options:
            if name not in others or name in known:
                free = tuple(other for other in others if other not in known)
                raise ValueError(f"{function} has no option {name!r}{_near(name, free)}")
        for name, parameter in others.items():
            if name not in known and name not in options and parameter.default is parameter.empty:
                raise ValueError(
                    f"{function} has a parameter {name!r} that nothing fills: give it a default, "
                    f"or a name of the contract{_near(name, NAMES)}"
                )
        return CallableDecoder(generate, known, pair, options, declared, versions or {})

    return build


def finish_reason(tokens: Sequence[int], request: Request) -> FinishReason:
    """Why an output ends where it does."""
    if tokens and tokens[-1] in request.eos:
        return "eos"
    if any(tuple(tokens[-len(stop) :]) == stop for stop in request.stop):
        return "stop"
    return "length"


def _ids(answer: Any, function: str) -> list[int]:
    """The same ids as a list of int, from whatever holds them."""
    if hasattr(answer, "tolist"):
        answer = answer.tolist()
    try:
        return [operator.index(token) for token in answer]
    except TypeError as error:
        shown = f"{answer!r:.60}"
        raise TypeError(
            f"{function} returned {shown}: it must return the new ids, a list of int ({error})"
        ) from None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=2)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (known are {', '.join(known)})" if known else " (it has none)"
