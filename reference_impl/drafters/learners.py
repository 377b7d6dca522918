"""What each family of drafters predicts when it is trained: ``training.Learner`` one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from reference_impl.cache import cache_argument
from reference_impl.drafters.dataset import Batch
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

    def predictions(self, batch: Batch) -> list[Tensor]:
        """From the text alone: the same for every token of a block."""
        return [self.draft.model(input_ids=batch.ids, use_cache=False).last_hidden_state]

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

    def predictions(self, batch: Batch) -> list[Tensor]:
        """Head k: the law k positions ahead of a state."""
        states = batch.hidden.float()
        return [head(states.roll(ahead, 1)) for ahead, head in enumerate(self.heads, 1)]

    def save(self, folder: Path) -> None:
        """Write the heads."""
        self.heads.save(folder)


class EagleLearner(Learner):
    """A layer that guesses the next state; later predictions build on its own guesses.

    It begins as the identity: its guess is the state that it reads, or that state at the size that
    states have on average where it has a norm.

    Parameters
    ----------
    target : LlamaForCausalLM
    vocabulary : Tensor [R], int64
    depths : sequence of int
        Of ``EagleLayer``.
    steps : int
        Tokens of the blocks that it is trained to draft.
    """

    def __init__(
        self,
        target: LlamaForCausalLM,
        vocabulary: Tensor,
        depths: Sequence[int] = (-1,),
        steps: int = 3,
    ) -> None:
        shape = target.config
        config = LlamaConfig(
            vocab_size=1,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            max_position_embeddings=shape.max_position_embeddings,
            rope_parameters=shape.rope_parameters,
            depths=list(depths),
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
            self.layer.fc.bias.zero_()
            for joint in (self.layer.fc, self.layer.fuse):
                if joint is not None:
                    joint.weight.zero_()
                    torch.nn.init.eye_(joint.weight[:, -int(shape.hidden_size) :])
            if self.layer.fuse is not None:
                size = target.model.norm.weight.float().square().mean().sqrt()
                self.layer.llama.norm.weight.fill_(float(size))

    def predictions(self, batch: Batch) -> list[Tensor]:
        """The law after every token, from the states before it and the token itself.

        At its k-th guess in a row the layer has k guesses behind it, and true states before those:
        every guess attends to one of each pass before, and to the rest of the first pass.
        """
        tokens = self.embed(batch.ids[:, 1:]).detach()
        states = self.layer.read(batch.features[:, :-1].float())
        place = torch.arange(tokens.shape[1])
        back = place[:, None] - place
        cache = DynamicCache()
        name = cache_argument(self.layer.llama)
        guesses: list[Tensor] = []
        for step in range(self.steps):
            mask = [back >= step, *(back == step - pass_ for pass_ in range(1, step + 1))]
            found = self.layer.llama(
                inputs_embeds=self.layer.inputs(tokens, states),
                attention_mask=torch.cat(mask, 1)[None, None].expand(len(tokens), -1, -1, -1),
                position_ids=place[None],
                use_cache=True,
                **{name: cache},
            ).last_hidden_state
            first = found.new_zeros(len(found), 1, found.shape[2])  # no state comes before it
            guesses.append(torch.cat([first, found], 1))
            # The state of a token is what was guessed from those before it.
            states = torch.cat([states[:, :1], found[:, :-1].float()], 1)
        return guesses

    def save(self, folder: Path) -> None:
        """Write the layer."""
        self.layer.save(folder)
