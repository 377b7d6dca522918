"""Bytes that are nearly a document: values of JSON exchanged, bytes cut and pasted, or noise."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

DEEP = 5_000  # brackets, one in the other: more than any reader follows
NUMBERS = (-1, 0, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 1e-320)
CHANGES = 3  # of one document
NOISE = 64  # bytes, at the most

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["\ud800", "\x00", "<script>", "token_id:", "token_id:x", "²", "limit", "stop"]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


def nearly(documents: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """Bytes that are one of the documents, changed; or have nothing to do with them.

    Parameters
    ----------
    documents : sequence
        Values of JSON, each valid where the bytes are read.
    """
    texts = [json.dumps(document).encode() for document in documents]
    return st.one_of(
        changed(documents),
        changed(documents),
        spliced(texts),
        st.binary(max_size=NOISE),
        st.sampled_from([b"", b"null", b"[" * DEEP, b'{"a":' * DEEP, *texts]),
        st.builds(
            _deepened, st.sampled_from(texts), st.sampled_from([b"[" * DEEP, b'{"x":' * DEEP])
        ),
    )


def _deepened(text: bytes, deep: bytes) -> bytes:
    """A document with a field more, of which there is no end."""
    return text.rstrip(b"}") + b', "more": ' + deep


@st.composite
def changed(draw: st.DrawFn, documents: Sequence[Any]) -> bytes:
    """A document in which some values are others, or are missing, or have come to it."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, CHANGES))):
        places = list(_places(document))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = draw(values)
    return json.dumps(document).encode()


def _places(value: Any) -> Any:
    """Every container in a value with every key of it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


@st.composite
def spliced(draw: st.DrawFn, texts: Sequence[bytes]) -> bytes:
    """A text of which a part is gone, doubled, or other bytes."""
    text = draw(st.sampled_from(texts))
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, min(len(text), begin + NOISE)))
    put = draw(st.one_of(st.just(b""), st.just(2 * text[begin:end]), st.binary(max_size=8)))
    return text[:begin] + put + text[end:]
