"""Models that an engine's own tools convert, kept next to the directory they come from."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path


def converted(source: Path, form: str, convert: Callable[[Path, Path], None]) -> Path:
    """The model of ``source`` in another form, made on first demand.

    Parameters
    ----------
    source : Path
        Hugging Face directory.
    form : str
        Names the form and whatever decides what it is, versions for instance.
    convert : callable
        Makes the second directory from the first.
    """
    path = source.with_name(f"{source.name}.{form}")
    if not path.exists():
        # Complete or not there at all: another process may look for it, or make it too.
        with tempfile.TemporaryDirectory(dir=source.parent) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            convert(source, made)
            with contextlib.suppress(OSError):
                made.rename(path)
    return path
