"""Requests that were sent again while a row was measured, as the decoder counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from harness.contract import Decoder
from harness.record import GenerationRow


def with_retries(
    rows: Iterator[GenerationRow], decoders: Mapping[str, Decoder]
) -> Iterator[GenerationRow]:
    """The same rows, each with what its decoder sent again since its row before.

    Those of the warm-up are in a decoder's first row, those of a batch in the batch's first.
    """
    seen = {name: getattr(decoder, "retries", 0) for name, decoder in decoders.items()}
    for row in rows:
        now = getattr(decoders[row.decoder], "retries", 0)
        again, seen[row.decoder] = now - seen[row.decoder], now
        yield msgspec.structs.replace(row, retries=again) if again else row
