"""Pairs and decoders, each loaded once: settings that are measured in turns share them."""

from __future__ import annotations

from typing import Any

from harness.adapters import DecoderError, load_decoder
from harness.bench.drafts import with_draft
from harness.command_line import BadInput
from harness.contract import Decoder
from harness.isolation import isolated_name
from harness.models import ModelPair, load_pair
from harness.report.options import Options


class Models:
    """What was loaded so far."""

    def __init__(self) -> None:
        self._pairs: dict[Any, ModelPair] = {}
        self._decoders: dict[Any, Decoder] = {}

    def pair(self, options: Options) -> ModelPair:
        """The pair that the options name.

        Raises
        ------
        PairError
            If it cannot be had.
        """
        key = _pair_key(options)
        if key not in self._pairs:
            pair = load_pair(
                options.pair,
                options.target,
                options.draft,
                options.device,
                options.dtype,
                trust_remote_code=options.trust_remote_code,
            )
            self._pairs[key] = with_draft(pair, options.draft_choice)
        return self._pairs[key]

    def decoder(self, name: str, options: Options) -> Decoder:
        """A decoder on that pair.

        Raises
        ------
        BadInput
            If it cannot be built.
        """
        name = isolated_name(name) if options.isolate else name
        key = (name, tuple(options.decoder_options.items()), _pair_key(options))
        if key not in self._decoders:
            self._decoders[key] = _load_decoder(name, self.pair(options), options)
        return self._decoders[key]


def _pair_key(options: Options) -> Any:
    named = (options.pair, options.target, options.draft)
    return *named, options.device, options.dtype, options.draft_choice


def _load_decoder(name: str, pair: ModelPair, options: Options) -> Decoder:
    try:
        return load_decoder(name, pair, options.decoder_options)
    except DecoderError as error:
        raise BadInput(str(error)) from None
    except Exception as error:  # whatever a stranger's factory raises
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise BadInput(
            f"decoder {name!r} cannot be built: {type(error).__name__}: {reason}"
        ) from None
