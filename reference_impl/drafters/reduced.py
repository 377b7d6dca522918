"""A two-layer Llama draft that speaks a reduced vocabulary.

The draft reads with the target's own input embedding and scores with the target's own
head rows, so its file holds only its decoder layers and final norm. Outside the reduced
vocabulary its logits are -inf: q is zero there, the draft never proposes such a token,
and the verification rule, which only needs q to be a law, stays exact.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

WEIGHTS, SHAPE = "draft.safetensors", "config.json"
SHAPE_KEYS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")


class ReducedHead(torch.nn.Module):
    """Score the kept tokens only: [..., hidden] to [..., V] logits, -inf elsewhere.

    Parameters
    ----------
    rows : torch.Tensor
        The full head, [V, hidden]; the kept rows are copied into one contiguous matrix.
    vocabulary : torch.Tensor
        Kept token ids, [R] int64.
    """

    def __init__(self, rows: torch.Tensor, vocabulary: torch.Tensor) -> None:
        super().__init__()
        self.size = rows.shape[0]
        self.rows = torch.nn.Linear(rows.shape[1], len(vocabulary), bias=False, device="meta")
        kept = rows.detach()[vocabulary].clone()
        self.rows.weight = torch.nn.Parameter(kept, requires_grad=False)
        self.vocabulary: torch.Tensor
        self.register_buffer("vocabulary", vocabulary)

    @property
    def weight(self) -> torch.Tensor:
        """The kept rows, [R, hidden]."""
        return self.rows.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = self.rows(hidden)
        full = reduced.new_full((*reduced.shape[:-1], self.size), -torch.inf)
        return full.index_copy_(-1, self.vocabulary, reduced)


class ReducedVocabLlama(LlamaForCausalLM):  # type: ignore[misc]
    """`LlamaForCausalLM` with a `ReducedHead`; its forward is the parent's, unchanged.

    Build it with `build_reduced_draft` or `load_reduced_draft`.
    """

    # Of its linear layers on a CPU: its file is bfloat16, and whatever its law, it is a law.
    packed_dtype = torch.bfloat16

    # The head is a copy of some rows, which no tying may overwrite.
    _tied_weights_keys: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, config: LlamaConfig, target: PreTrainedModel, vocabulary: torch.Tensor):
        super().__init__(config)
        embedding = target.get_input_embeddings()
        rows = target.get_output_embeddings().weight
        self.to(device=rows.device, dtype=rows.dtype)
        self.model.embed_tokens = embedding
        # Shared as well because `to` must not round the rotary frequencies.
        self.model.rotary_emb = target.base_model.rotary_emb
        self.lm_head = ReducedHead(rows, vocabulary.to(rows.device, torch.int64))


def build_reduced_draft(
    target: PreTrainedModel, vocabulary: torch.Tensor, num_layers: int = 2
) -> ReducedVocabLlama:
    """Make an untrained draft for `target`, in its dtype and on its device.

    Parameters
    ----------
    target : PreTrainedModel
        A Llama model, whose input embedding is shared, not copied.
    vocabulary : torch.Tensor
        Token ids the draft may propose, [R] integers.
    num_layers : int
        Decoder layers of the draft; all other sizes are the target's.
    """
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = num_layers
    config.tie_word_embeddings = False
    draft = ReducedVocabLlama(config, target, vocabulary)
    draft.eval()
    return draft


def with_full_head(draft: ReducedVocabLlama, target: PreTrainedModel) -> LlamaForCausalLM:
    """The same layers under all rows of the target's head: a plain Llama, which engines load."""
    config = copy.deepcopy(draft.config)
    config.tie_word_embeddings = target.config.tie_word_embeddings
    config.architectures = [LlamaForCausalLM.__name__]
    full = LlamaForCausalLM(config).to(device=target.device, dtype=target.dtype).eval()
    full.load_state_dict(_own(draft), strict=False)
    full.get_input_embeddings().weight = target.get_input_embeddings().weight
    full.get_output_embeddings().weight = target.get_output_embeddings().weight
    return full


def _own(draft: ReducedVocabLlama) -> dict[str, torch.Tensor]:
    """Weights that the draft does not take from its target."""
    prefixes = ("model.layers.", "model.norm.")
    return {k: v for k, v in draft.state_dict().items() if k.startswith(prefixes)}


def save_reduced_draft(draft: ReducedVocabLlama, directory: Path) -> None:
    """Write `draft.safetensors` (weights in bf16) and `config.json` into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.to("cpu", torch.bfloat16).contiguous() for k, v in _own(draft).items()}
    tensors["vocabulary"] = draft.lm_head.vocabulary.to("cpu", torch.int32)
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    shape = {
        key: getattr(draft.config, key) for key in ("num_hidden_layers", "vocab_size", *SHAPE_KEYS)
    }
    shape["reduced_vocab_size"] = len(tensors["vocabulary"])
    (directory / SHAPE).write_text(json.dumps(shape, indent=2) + "\n")


def load_reduced_draft(target: PreTrainedModel, directory: Path) -> ReducedVocabLlama:
    """Load the draft in `directory` for `target`; ValueError if their shapes differ."""
    shape = json.loads((directory / SHAPE).read_text())
    for key in ("vocab_size", *SHAPE_KEYS):
        if (own := getattr(target.config, key, None)) != shape[key]:
            raise ValueError(f"draft {directory} needs a target with {key}={shape[key]}, not {own}")
    tensors = load_file(directory / WEIGHTS)
    draft = build_reduced_draft(target, tensors.pop("vocabulary"), shape["num_hidden_layers"])
    result = draft.load_state_dict(tensors, strict=False)
    if missing := [key for key in _own(draft) if key in result.missing_keys]:
        raise ValueError(f"draft {directory} lacks the weights {', '.join(missing)}")
    return draft
