"""What an error of a stranger's code says, as text that can be shown and written down."""

from __future__ import annotations


def words_of(error: BaseException) -> str:
    """Its message, if it has one that can be had; halves of characters are replaced."""
    try:
        words = str(error)
    except Exception as second:  # a stranger's __str__ may raise anything as well
        words = f"(its message raised {type(second).__name__})"
    return words.encode("utf-8", "replace").decode()
