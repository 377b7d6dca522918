"""GGUF files hold the model that they are made of: transformers reads them back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from harness import tiny_pairs
from harness.gguf_files import write_gguf

pytest.importorskip("gguf")


def saved(model: PreTrainedModel, directory: Path) -> Path:
    """A directory that holds the model."""
    model.save_pretrained(directory)
    return directory


@pytest.mark.parametrize("vocab", [8, 64])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mamba"])
def test_reads_back_as_the_same_model(tmp_path: Path, architecture: str, vocab: int) -> None:
    model = tiny_pairs.make_target(architecture, vocab, seed=1)
    path = write_gguf(saved(model, tmp_path / "target"))
    again = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=model.config, dtype=torch.float32
    )
    ids = torch.arange(20)[None] % vocab
    with torch.inference_mode():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)


def test_is_made_once_and_again_for_another_model(tmp_path: Path) -> None:
    directory = saved(tiny_pairs.make_target("llama", 8, seed=1), tmp_path / "target")
    path = write_gguf(directory)
    first = path.stat().st_mtime_ns, path.read_bytes()
    assert write_gguf(directory) == path
    assert path.stat().st_mtime_ns == first[0]
    saved(tiny_pairs.make_target("llama", 8, seed=2), directory)
    assert write_gguf(directory).read_bytes() != first[1]
    assert not [p for p in tmp_path.iterdir() if p not in (directory, path)]


def test_padded_outputs_are_tokens_of_the_file(tmp_path: Path) -> None:
    import gguf

    model = tiny_pairs.make_target("llama", 64, seed=1)
    tiny_pairs.pad_outputs(model, 16)
    reader = gguf.GGUFReader(write_gguf(saved(model, tmp_path / "draft")))
    texts = reader.get_field("tokenizer.ggml.tokens").contents()
    assert texts == [f"<{token}>" for token in range(80)]


def test_other_architectures_are_refused_in_one_line(tmp_path: Path) -> None:
    directory = saved(tiny_pairs.make_target("mistral", 8, seed=1), tmp_path / "target")
    with pytest.raises(ValueError, match="no GGUF of MistralForCausalLM: only of Llama"):
        write_gguf(directory)
