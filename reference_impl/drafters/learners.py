"""What each family of drafters predicts when it is trained: ``training.Learner`` one by one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from reference_impl.drafters.dataset import Batch, Targets
from reference_impl.drafters.eagle import EagleLayer
from reference_impl.drafters.medusa import MedusaHeads
from reference_impl.drafters.reduced import build_reduced_draft, save_reduced_draft
from reference_impl.drafters.training import Learner


class ModelLearner(Learner):
    """A small model: the target's first layer, its last layer and final norm to begin with."""

    def __init__(self, target: LlamaForCausalLM, vocabulary: Tensor) -> None:
        self.module = self.draft = build_reduced_draft(target, vocabulary)
        for layer, source in zip(self.draft.model.layers, (0, -1), strict=True):
            layer.load_state_dict(target.model.layers[source].state_dict())
        self.draft.model.norm.load_state_dict(target.model.norm.state_dict())
        self.draft.requires_grad_(False)
        for part in (self.draft.model.layers, self.draft.model.norm):
            part.requires_grad_(True)
        self.head = self.draft.lm_head.weight.to(torch.bfloat16)

    def predictions(self, batch: Batch) -> list[tuple[Tensor, Targets]]:
        """The law of every token of the answers, from the text before it."""
        states = self.draft.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        return [(states[batch.scored], batch.targets(batch.scored))]

    def save(self, folder: Path) -> None:
        """Write the draft."""
        save_reduced_draft(self.draft, folder)


class MedusaLearner(Learner):
    """Heads that look 1 to ``count`` tokens further than the target."""

    def __init__(self, target: LlamaForCausalLM, vocabulary: Tensor, count: int) -> None:
        width = int(target.config.hidden_size)
        self.module = self.heads = MedusaHeads(count, width, torch.nn.Identity())
        self.heads.vocabulary = vocabulary
        self.head = target.lm_head.weight.detach()[vocabulary].to(torch.bfloat16)

    def predictions(self, batch: Batch) -> list[tuple[Tensor, Targets]]:
        """Head k: the law k positions ahead of a state."""
        found = []
        for ahead, head in enumerate(self.heads, 1):
            where = batch.scored.clone()
            where[:, :ahead] = False
            states = batch.hidden.roll(ahead, 1)[where].float()
            found.append((head(states), batch.targets(where)))
        return found

    def save(self, folder: Path) -> None:
        """Write the heads."""
        self.heads.save(folder)


class EagleLearner(Learner):
    """A layer that guesses the next state; later predictions build on its own guesses.

    It begins as the identity: its guess is the state that it reads.
    """

    def __init__(self, target: LlamaForCausalLM, vocabulary: Tensor, steps: int = 2) -> None:
        shape = target.config
        config = LlamaConfig(
            vocab_size=1,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            max_position_embeddings=shape.max_position_embeddings,
            rope_parameters=shape.rope_parameters,
        )
        self.module = self.layer = EagleLayer(config)
        self.layer.vocabulary = vocabulary
        self.steps = steps
        self.embed = target.model.embed_tokens
        self.head = target.lm_head.weight.detach()[vocabulary].to(torch.bfloat16)
        only = self.layer.llama.layers[0]
        with torch.no_grad():
            for matrix in (only.self_attn.o_proj.weight, only.mlp.down_proj.weight):
                matrix.zero_()
            width = int(shape.hidden_size)
            self.layer.fc.bias.zero_()
            self.layer.fc.weight[:, :width] = 0
            self.layer.fc.weight[:, width:] = torch.eye(width)

    def predictions(self, batch: Batch) -> list[tuple[Tensor, Targets]]:
        """The law after every token, from the states before it and the token itself."""
        where = batch.scored.clone()
        where[:, 0] = False
        tokens = self.embed(batch.ids[:, 1:]).detach()
        true = batch.hidden[:, :-1].float()
        states, found = true, []
        for _ in range(self.steps):
            inputs = self.layer.inputs(tokens, states)
            guesses = self.layer.llama(inputs_embeds=inputs, use_cache=False).last_hidden_state
            found.append((guesses[where[:, 1:]], batch.targets(where)))
            # The state of a token is what was guessed from those before it.
            states = torch.cat([true[:, :1], guesses[:, :-1].float()], 1)
        return found

    def save(self, folder: Path) -> None:
        """Write the layer."""
        self.layer.save(folder)
