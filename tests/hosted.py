"""Right decoders as a child on stdio runs them: from files alone."""

from __future__ import annotations

from transformers import AutoModelForCausalLM

from harness.adapters import reference
from harness.models import ModelPair
from harness.pair_files import PairFiles


def load(files: PairFiles) -> ModelPair:
    """Both models, from their directories."""
    target, draft = (
        AutoModelForCausalLM.from_pretrained(path["hf"]).eval()
        for path in (files.target, files.draft)
    )
    return ModelPair(files.name, target, draft, files.vocab_size, files.context_length, files.eos)


def engine(files: PairFiles, max_batch: int | None = None) -> reference.EngineDecoder:
    """The reference engine."""
    return reference.engine(load(files), max_batch)
