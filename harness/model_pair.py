"""What a pair of models is: a target, a draft, and what both agree on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from harness import precision
from harness.pair_files import Form, PairFiles, Role, UnsupportedPairError


@dataclass
class ModelPair:
    """A target and a draft that share their token ids.

    Attributes
    ----------
    name : str
    target, draft : PreTrainedModel
    vocab_size : int
        Token ids in use; a model's output may be padded beyond it.
    context_length : int
    eos : tuple of int
    tokenizer : transformers tokenizer or None
        None for tiny pairs: they have no text.
    source : str
        Where the weights came from, for the record.
    heads : dict of str to Path
        Drafters that were trained for the target and read its states, by family.
    loaded_with : dict
        What ``load_pair`` was given: by that another process has the same pair.
    """

    name: str
    target: PreTrainedModel
    draft: PreTrainedModel
    vocab_size: int
    context_length: int
    eos: tuple[int, ...] = ()
    tokenizer: Any = None
    source: str = ""
    heads: dict[str, Path] = field(default_factory=dict)
    loaded_with: dict[str, Any] = field(default_factory=dict)
    _directories: dict[str, Path] = field(default_factory=dict, repr=False)

    @property
    def has_weights(self) -> bool:
        """Whether its models are here, and not behind somebody's server alone."""
        return not isinstance(self.target, Elsewhere)

    @property
    def device(self) -> torch.device:
        """Where the target lives."""
        return torch.device(self.target.device)

    def directory(self, role: Role) -> Path:
        """Hugging Face directory of ``target`` or ``draft``, saved on first demand."""
        if any(isinstance(m, precision.Int8Linear) for m in getattr(self, role).modules()):
            raise UnsupportedPairError(
                f"the {role} computes in int8, which no file of it would say: a decoder that loads "
                "files needs another --dtype"
            )
        if role not in self._directories:
            path = cache_directory() / "pairs" / f"{self.name}-{self.fingerprint()[:12]}" / role
            if not path.exists():
                self._save(role, path)
            self._directories[role] = path
        return self._directories[role]

    def _save(self, role: Role, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Complete or not there at all: another process may look for it, or make it too.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / role
            getattr(self, role).save_pretrained(made)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(made)
            with contextlib.suppress(OSError):
                made.rename(path)

    def file(self, role: Role, form: Form) -> Path:
        """A model in a form that an engine loads, made on first demand."""
        if form == "gguf":
            from harness.gguf_files import write_gguf  # needs the extra [gguf]

            return write_gguf(self.directory(role))
        return self.directory(role)

    def files(self, forms: Sequence[Form]) -> PairFiles:
        """Both models in these forms."""
        return PairFiles(
            name=self.name,
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            eos=self.eos,
            target={form: str(self.file("target", form)) for form in forms},
            draft={form: str(self.file("draft", form)) for form in forms},
        )

    def fingerprint(self) -> str:
        """SHA-256 over a sample of both models' weights: cheap, and other for any other pair."""
        digest = hashlib.sha256()
        for model in (self.target, self.draft):
            digest.update(type(model).__name__.encode())
            for name, weight in model.state_dict().items():
                sample = weight.flatten()[:: max(1, weight.numel() // 997)].float().cpu()
                digest.update(f"{name}{tuple(weight.shape)}".encode() + sample.numpy().tobytes())
        return digest.hexdigest()


class PairError(ValueError):
    """A pair that cannot be had; the message says what to do."""


class NoWeightsError(ValueError):
    """The pair has no weights here: the models are behind somebody's server."""


class Elsewhere:
    """A model of which nothing is known."""

    def __getattr__(self, name: str) -> Any:
        raise NoWeightsError("needs the target's weights: give --target and --draft")


def cache_directory() -> Path:
    """Where models are kept: SPECDEC_CACHE, else the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec-harness"
    return Path(os.environ.get("SPECDEC_CACHE") or default)
