"""Where speculative outputs leave the plain ones, as far as a record tells: ids, not text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.bench.row_figures import verdict_of
from harness.record import GenerationRow
from harness.report.document import Difference, Differences
from harness.verdict import Status

SHOWN = 24  # ids of each output after those that both begin with
MOST = 100  # outputs of a decoder: a page that lists all of a broken one cannot be opened
UNEXPLAINED = "the outputs differ"


def differences(
    rows: Sequence[GenerationRow], decoders: Sequence[str], declared_lossy: Collection[str] = ()
) -> list[Differences]:
    """The outputs of every decoder that differ where they should not; sampled ones may."""
    found = []
    for decoder in decoders:
        differing = [row for row in rows if row.decoder == decoder and _differs(row)]
        if differing:
            lossy = decoder in declared_lossy
            listed = [_difference(row, lossy) for row in differing[:MOST]]
            found.append(Differences(decoder, listed, len(differing)))
    return found


def _differs(row: GenerationRow) -> bool:
    return row.identical is not None and (not row.identical or row.tokens != row.plain_tokens)


def _difference(row: GenerationRow, lossy: bool) -> Difference:
    prefix = common_prefix(row.plain_tokens, row.tokens)
    repeat = f", repeat {row.repeat + 1}" if row.repeat else ""
    told = [text for text in (row.fault, row.near_tie, row.error) if text]
    return Difference(
        kind=_kind(row, lossy),
        where=f"{row.task}, {row.prompt_id}{repeat}",
        prefix=prefix,
        plain=_continuation(row.plain_tokens, prefix, row.plain_finish_reason),
        speculative=_continuation(row.tokens, prefix, row.finish_reason),
        words="; ".join(told) or UNEXPLAINED,
    )


def _kind(row: GenerationRow, lossy: bool) -> str:
    status = verdict_of(row)
    if status is Status.PASS:
        return "near tie"
    return "LOSSY" if lossy and status is Status.FAIL else status.value


def _continuation(tokens: Sequence[int], prefix: int, reason: str) -> list[str]:
    ids = [str(token) for token in tokens[prefix : prefix + SHOWN]]
    ends = prefix + SHOWN >= len(tokens)
    return [*ids, f"end ({reason})" if reason else "end"] if ends else [*ids, "..."]


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
