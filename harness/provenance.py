"""Where results came from: command, date, machine, versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in (
        "specdec-harness",
        "torch",
        "transformers",
        "numpy",
        "scipy",
        "hypothesis",
        "pytest",
    ):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, str]:
    """What a timing depends on: processor, cores, threads."""
    import torch

    info = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
    }
    if torch.cuda.is_available():
        info["gpu"] = torch.cuda.get_device_name()
    return info


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
    )


def provenance() -> dict[str, object]:
    """What says where a file of measurements came from: command, date, machine, versions."""
    return {
        "command": command_line(),
        "date": now(),
        "machine": machine(),
        "versions": versions(),
    }


def write_json(path: Path, told: Mapping[str, object]) -> None:
    """Write figures and where they came from, for people as for programs."""
    text = json.dumps({**provenance(), **told}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def check_writable(option: str, path: Path) -> None:
    """Raise ValueError, naming the option, unless ``path`` can be written; makes its directory.

    A file that was not there is not there afterwards: the run may still be refused.
    """
    new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise ValueError(f"cannot write {option} {path}: {error.strerror}") from None


def command_line() -> str:
    """How this process was started, as somebody would type it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)  # of what `python -m` was given
    name = f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
    return f"{name} {shlex.join(sys.argv[1:])}".rstrip()
