"""One layer that goes on in the target's own states (Li et al. 2024, "EAGLE" and "EAGLE-2").

The layer reads the state f_i of a token and the embedding of the next token x_{i+1}, and guesses
f_{i+1}; the target's own head makes the law of x_{i+2} of it. It goes on with its guess in place of
the state, and starts anew from the true states once the target has verified a block.

The state may be one of several depths of the target, fused into one (Li et al. 2025, "EAGLE-3");
its guesses are never held to the target's states then, only to its laws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel, PreTrainedModel

from reference_impl.batch import Batch
from reference_impl.cache import CachedModel, Ints, fit_vocabulary
from reference_impl.drafters.checkpoints import checked_ids, fill, opened
from reference_impl.drafters.features import FeatureDrafter
from reference_impl.drafters.reduced import ReducedHead
from reference_impl.packed import with_packed_linears
from reference_impl.proposal import Proposal
from reference_impl.transfers import to_device

WEIGHTS, SHAPE, VOCABULARY = "model.safetensors", "config.json", "vocabulary"
_NORM = "layers.0.input_layernorm.weight"


class EagleLayer(nn.Module):
    """``fc`` joins embedding and state, one Llama layer follows; no norm before, none behind.

    Names are those of SafeAILab's checkpoints: ``fc.weight``, ``fc.bias``, ``layers.0.*``. Where it
    reads several depths there are ``fuse.weight`` beside them, and both norms: its guesses have to
    keep to the size of the target's states by themselves.

    Parameters
    ----------
    config : LlamaConfig
        Of the layer; ``hidden_size`` is the width D of the target's states and embeddings, and
        ``depths``, if it is there, after how many layers states are read, as in ``CachedModel``.

    Attributes
    ----------
    depths : tuple of int
        The last one is -1: what goes into the target's head.
    vocabulary : Tensor [R], int64, or None
        Ids that it was trained to propose, where these are not all.

    Raises
    ------
    ValueError
        If ``depths`` are none.
    """

    vocabulary: Tensor | None = None

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        config.num_hidden_layers = 1
        self.config = config
        width = config.hidden_size
        self.depths = _depths(getattr(config, "depths", (-1,)))
        self.fuse = (
            nn.Linear(len(self.depths) * width, width, bias=False) if self.depths[1:] else None
        )
        self.fc = nn.Linear(2 * width, width)
        self.llama = LlamaModel(config)
        self.llama.embed_tokens = None  # the target's are used
        if self.fuse is None:
            self.llama.norm = nn.Identity()
            self.llama.layers[0].input_layernorm = nn.Identity()

    def read(self, features: Tensor) -> Tensor:
        """States [B, T, D] of the target's [B, T, sum of widths]: fused, if there are several.

        A few numbers of a lower layer's states are larger than all others by far; a norm without
        weights keeps them within what the others are.
        """
        if self.fuse is None:
            return features
        *lower, last = features.view(*features.shape[:-1], len(self.depths), -1).unbind(-2)
        fused: Tensor = self.fuse(torch.cat([*map(_normed, lower), last], -1))
        return fused

    def inputs(self, embeddings: Tensor, states: Tensor) -> Tensor:
        """What the layer is fed, [B, T, D], from x_{i+1} and f_i, [B, T, D] each."""
        if self.fuse is not None:
            embeddings = _normed(embeddings)
        joined: Tensor = self.fc(torch.cat([embeddings, states], -1))
        return joined

    def weights(self) -> dict[str, Tensor]:
        """All parameters, by the names of the checkpoints."""
        return {n.removeprefix("llama."): p for n, p in self.named_parameters()}

    def save(self, folder: Path) -> None:
        """Write configuration and weights."""
        self.config.save_pretrained(folder)
        kept = {n: w.detach().to(torch.bfloat16).contiguous() for n, w in self.weights().items()}
        if self.vocabulary is not None:
            kept[VOCABULARY] = self.vocabulary
        save_file(kept, folder / WEIGHTS)


def _depths(found: Any) -> tuple[int, ...]:
    """Numbers of layers, and -1; ValueError if it is something else."""
    numbers = isinstance(found, list | tuple) and all(type(depth) is int for depth in found)
    if not numbers or tuple(found[-1:]) != (-1,) or min(found[:-1], default=0) < 0:
        raise ValueError(f"depths are {found!r}: numbers of layers are needed, and -1 behind them")
    return tuple(found)


def _normed(x: Tensor) -> Tensor:
    return nn.functional.rms_norm(x, x.shape[-1:])


def load_eagle(folder: Path) -> EagleLayer:
    """A layer from a folder in SafeAILab's layout, in safetensors.

    The target's embedding, which their files hold once more, is not read; ``fc`` may lack a bias.
    Beside their names there may be ``vocabulary``: ids that it is limited to.

    Raises
    ------
    ValueError
        In one line, if the weights are of another shape, or there are none in safetensors.
    """
    shape, weights = opened(folder, SHAPE, WEIGHTS)
    try:
        layer = EagleLayer(LlamaConfig(**shape))
    except Exception as error:  # of sizes that are none, or do not go together
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{folder / SHAPE} describes no EAGLE layer: {reason}") from None
    for ignored in ("embed_tokens.weight", *(() if layer.fuse is not None else (_NORM,))):
        weights.pop(ignored, None)
    layer.vocabulary = weights.pop(VOCABULARY, None)
    weights.setdefault("fc.bias", torch.zeros(layer.config.hidden_size))
    fill(layer.weights(), weights, "an EAGLE layer")
    return layer.eval()


class EagleDrafter(FeatureDrafter):
    """Draws token after token, each from a guess of the state before it.

    Parameters
    ----------
    layer : EagleLayer
    target : PreTrainedModel
        Whose embedding and head are used.
    vocab : int
        Token ids in use.
    stop_below : float
        Of ``SequentialDrafter``.

    Raises
    ------
    ValueError
        If the layer was made for another target: of other states, layers or ids.
    """

    def __init__(
        self,
        layer: EagleLayer,
        target: PreTrainedModel,
        vocab: int,
        stop_below: float = 0.0,
    ) -> None:
        self.embed, self.head = target.get_input_embeddings(), target.get_output_embeddings()
        width, own = int(self.embed.weight.shape[1]), int(layer.config.hidden_size)
        if own != width:
            raise ValueError(
                f"this EAGLE layer is for states of {own} numbers, the target's have {width}: use "
                "a layer that was trained for this target"
            )
        layers = int(target.config.get_text_config().num_hidden_layers)
        if max(layer.depths) > layers:
            raise ValueError(
                f"this EAGLE layer reads the states after {max(layer.depths)} layers, the target "
                f"has {layers}: use a layer that was trained for this target"
            )
        self.layer = with_packed_linears(layer, torch.bfloat16)
        self.depths, self.dtype = layer.depths, layer.fc.weight.dtype
        self.vocab, self.stop_below = vocab, stop_below
        if layer.vocabulary is not None:
            ids = checked_ids(layer.vocabulary, min(vocab, len(self.head.weight)))
            self.head = ReducedHead(self.head.weight, ids.to(self.head.weight.device))
        self.head = with_packed_linears(self.head, torch.bfloat16)

    def start(self, batch: Batch, capacity: int) -> None:
        """Begin with nothing."""
        super().start(batch, capacity)
        self._model = CachedModel(self.layer.llama, capacity, self.vocab)
        self._cached: Ints = np.zeros(len(batch), dtype=np.int64)  # true states that were fed
        self._state: Tensor  # the last guess, [B, D]

    def propose(self, batch: Batch, count: Ints) -> Proposal:
        """Propose up to ``count`` [B] tokens a row; none in the first round of a one-token text."""
        return super().propose(batch, self.drafting(batch, count))

    def drafting(self, batch: Batch, count: Ints) -> Ints:
        """``count`` [B], and 0 for a text of one token in its first round.

        Where it is 0 for all of them the states of the others are read all the same.
        """
        count = count * self.known(batch)
        if not count.any():
            self.leave_out(batch)
        return count

    def leave_out(self, batch: Batch) -> None:
        """Read the states of the last round, which pass by, for a round without drafts."""
        if self.known(batch).any():
            self._catch_up(batch)

    def logits(self, batch: Batch, drafts: Tensor, step: int) -> Tensor:
        """Feed the true states that are new, or else the last guess."""
        if not step:
            self._state = self._catch_up(batch)
        else:
            state, token = self._state.unsqueeze(1), drafts[:, -1:]
            self._state = self._feed(state, token, batch.length + step - 2)[:, 0]
        return fit_vocabulary(self.head(self._state), self.vocab)

    def _catch_up(self, batch: Batch) -> Tensor:
        """Feed the states of the committed tokens but the last; the guess after them, [B, D]."""
        assert self._features is not None
        missing = np.maximum(batch.length - 1 - self._cached, 1)
        width = int(missing.max())
        tokens = to_device(batch.tokens_from(self._cached + 1, width), batch.device)
        states = self.layer.read(self._features[:, :width])
        guesses = self._feed(states, tokens, self._cached)
        self._cached = batch.length - 1  # guesses will be fed behind them, and fed over
        row = torch.arange(len(batch), device=batch.device)
        return guesses[row, to_device(missing - 1, batch.device)]

    def _feed(self, states: Tensor, tokens: Tensor, start: Ints) -> Tensor:
        """Feed states [B, T, D] and the tokens [B, T] after them; guesses [B, T, D]."""
        return self._model.states(self.layer.inputs(self.embed(tokens), states), start)

    def observe(self, accepted: Ints) -> None:
        """The states of what was accepted are shown: there is nothing else to learn."""

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows."""
        super().select(rows)
        self._model.select(rows)
        self._cached = self._cached[rows.cpu().numpy()]
