"""Decoders by name, import path or entry point: ``load_decoder`` finds them all."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Set
from importlib import metadata
from typing import TYPE_CHECKING, Any

from harness.adapters.plain_callable import decoder as decoder
from harness.contract import Decoder
from harness.pair_files import UnsupportedPairError

if TYPE_CHECKING:  # an engine's own environment, where adapters are imported too, has no torch
    from harness.models import ModelPair

GROUP = "specdec_harness.decoders"
Factory = Callable[..., Decoder]

BUILT_IN: Mapping[str, str] = {
    "reference": "harness.adapters.reference:engine",
    "reference-ngram": "harness.adapters.reference:engine_ngram",
    "reference-early-exit": "harness.adapters.reference:early_exit",
    "reference-suffix": "harness.adapters.reference:suffix",
    "reference-cascade": "harness.adapters.reference:cascade",
    "reference-block": "harness.adapters.reference:block_verification",
    "reference-matching": "harness.adapters.reference:sampler_matching",
    "reference-medusa": "harness.adapters.reference:medusa",
    "reference-medusa-tree": "harness.adapters.reference:medusa_tree",
    "reference-eagle": "harness.adapters.reference:eagle",
    "reference-eagle-cascade": "harness.adapters.reference:eagle_cascade",
    "reference-eagle-tree": "harness.adapters.reference:eagle_tree",
    "reference-tree": "harness.adapters.reference:tree",
    "reference-typical": "harness.adapters.reference:typical_acceptance",
    "reference-page": "harness.adapters.reference:page",
    "reference-branches": "harness.adapters.reference:branches",
    "reference-prefix-cache": "harness.adapters.reference:prefix_cache",
    "reference-preemption": "harness.adapters.reference:preemption",
    "transformers-assisted": "harness.adapters.transformers:assisted",
    "transformers-early-exit": "harness.adapters.transformers:early_exit",
    "transformers-universal": "harness.adapters.transformers_universal:universal",
    "transformers-lookup": "harness.adapters.transformers:prompt_lookup",
}


class DecoderError(ValueError):
    """A decoder that cannot be had; the message says what to do."""


class NotInstalledError(DecoderError):
    """An engine that is not here; the message says how to install it."""


def decoder_names() -> list[str]:
    """Built-in decoders, engines that can be installed, and those of installed packages."""
    from harness.adapters.engines import ENGINES

    entries = metadata.entry_points(group=GROUP)
    return sorted({*BUILT_IN, *ENGINES, *(entry.name for entry in entries)})


def load_decoder(name: str, pair: ModelPair, options: Mapping[str, str] | None = None) -> Decoder:
    """Build the decoder called ``name`` on a pair.

    Parameters
    ----------
    name : str
        A built-in name, an engine, an entry point of the group ``specdec_harness.decoders``,
        ``package.module:factory`` with ``factory(pair, **options) -> Decoder``, ``cmd: COMMAND``
        for a child process on stdio, ``isolated: NAME`` for one in Python in a process of its own,
        or the URL of a server.
    options : mapping
        Handed to the factory; numbers and booleans are converted where they look like it.

    Raises
    ------
    DecoderError
        In one line that says what is wrong and what to do.
    UnsupportedPairError
        If the decoder does not take models of this kind.
    """
    factory = find_factory(name)
    values = {key: _value(text) for key, text in (options or {}).items()}
    try:
        inspect.signature(factory).bind(pair, **values)
    except TypeError as error:
        raise DecoderError(f"decoder {name!r} does not take these options: {error}") from None
    try:
        decoder = factory(pair, **values)
    except (NotInstalledError, UnsupportedPairError):
        raise
    except Exception as error:  # a stranger's factory may raise anything
        kind = "" if isinstance(error, ValueError | ImportError) else f"{type(error).__name__}: "
        words = " ".join(str(error).split())  # some take several lines
        raise DecoderError(f"decoder {name!r} cannot be built: {kind}{words}") from error
    if not isinstance(decoder, Decoder) or not isinstance(decoder.capabilities, Set):
        raise DecoderError(
            f"decoder {name!r} returned a {type(decoder).__name__}: it needs `capabilities` "
            "(a set of names) and `generate(requests)`"
        )
    return decoder


def find_factory(name: str) -> Factory:
    """The factory behind a name; DecoderError if there is none."""
    if name.startswith("cmd:"):
        from harness.adapters import stdio

        line = name.removeprefix("cmd:").strip()
        try:
            stdio.words(line)
        except ValueError as error:
            raise DecoderError(str(error)) from None
        return functools.partial(stdio.command, line)
    if name.startswith("isolated:"):
        from harness.adapters.isolated import isolated

        inner = name.removeprefix("isolated:").strip()
        _path_of(inner)  # and no more: nothing of it is imported here
        return functools.partial(isolated, inner)
    if name.startswith(("http://", "https://")):
        from harness.adapters.http import endpoint

        return functools.partial(endpoint, url=name)
    from harness.adapters.engines import ENGINES

    if name in ENGINES:
        return ENGINES[name].build
    module_name, _, attribute = _path_of(name).partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a module of the user's own, next to where they are
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a stranger's module raises when it is imported
        raise DecoderError(
            f"cannot import {module_name!r}: {type(error).__name__}: {error}"
        ) from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise DecoderError(f"module {module_name!r} has no function {attribute!r}")
    found: Factory = factory
    return found


def _path_of(name: str) -> str:
    """``package.module:factory`` of a decoder in Python; DecoderError if there is none."""
    from harness.adapters.engines import ENGINES

    if name.startswith(("cmd:", "isolated:", "http://", "https://")) or name in ENGINES:
        raise DecoderError(
            f"{name!r} does not run in this process: it needs no isolation; its time is limited by "
            "--decoder-option timeout=SECONDS"
        )
    entries = {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}
    path = BUILT_IN.get(name) or entries.get(name) or name
    if not path.partition(":")[2]:
        raise DecoderError(
            f"unknown decoder {name!r}: known are {', '.join(decoder_names())}; your own is "
            "package.module:factory"
        )
    return path


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
