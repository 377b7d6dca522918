"""A model pair as files: what an engine that loads its own models is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

Role = Literal["target", "draft"]
Form = Literal["hf", "gguf"]
FORMS: dict[Form, str] = {
    "hf": "Hugging Face directory: config.json and safetensors, float32",
    "gguf": "GGUF file, float32",
}
INT8 = "int8"
DTYPES = ("float32", "bfloat16", "float16", INT8)  # that a pair may compute in


class UnsupportedPairError(ValueError):
    """A pair whose models are not of the kinds that a decoder, or a form, takes."""


class PairFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where the models of a pair lie, and what both agree on.

    Attributes
    ----------
    name : str
    vocab_size : int
        Token ids in use; a model's output may be padded beyond it.
    context_length : int
        Longest prompt plus output.
    eos : tuple of int
        For information: a request says itself at which ids it ends.
    target, draft : dict of str to str
        Path by form, see ``FORMS``.
    """

    name: str
    vocab_size: int
    context_length: int
    eos: tuple[int, ...]
    target: dict[Form, str]
    draft: dict[Form, str]

    def file(self, role: Role, form: Form) -> Path:
        """A model in one of the forms that were asked for."""
        paths = self.target if role == "target" else self.draft
        if form not in paths:
            raise ValueError(f"no {form} of the {role}: ask for it with the option forms={form}")
        return Path(paths[form])


class OnDisk(Protocol):
    """What adapters of such engines need of a pair: a ``PairFiles`` or a ``ModelPair``."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def context_length(self) -> int:
        """Longest prompt plus output."""
        ...

    def file(self, role: Role, form: Form) -> Path:
        """A model on disk."""
        ...


def parse_forms(text: str) -> Sequence[Form]:
    """Forms from ``hf,gguf``; ValueError names those there are."""
    forms = text.split(",")
    if unknown := set(forms) - FORMS.keys():
        raise ValueError(f"unknown form {min(unknown)!r}: known are {', '.join(FORMS)}")
    return [form for form in FORMS if form in forms]
