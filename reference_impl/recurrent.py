"""A recurrent causal LM (Mamba and its kin) that can be rolled back, row by row.

A recurrent state has no slots to write over: once a token is in, it cannot be taken out. What can
be done is to keep the state before every position, and to go on from the one that is wanted. It
costs as much memory as keys and values do. Tokens are fed one at a time: the scan that
transformers has for blocks begins at an empty state.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from reference_impl.cache import CachedModel, Ints, States, features_of, fit_vocabulary
from reference_impl.transfers import to_device


class RecurrentModel(CachedModel):
    """A recurrent causal LM and the states of a batch of sequences.

    Parameters
    ----------
    model : PreTrainedModel
        Any transformers causal LM whose layers are linear attention or state spaces, all of them.
    capacity : int
        Positions per row.
    vocab : int
        Columns of the returned logits.
    """

    def __init__(self, model: PreTrainedModel, capacity: int, vocab: int) -> None:
        self.model = model
        self.capacity = capacity
        self.vocab = vocab
        self.device = next(model.parameters()).device
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "cache_params"
        # Older transformers tell the cache where it is: here always behind the first positions.
        after = {"cache_position": torch.tensor([1024], device=self.device)}
        self._told = after if "cache_position" in names else {}
        self._cache: Any = None
        self._saved: list[Tensor] = []

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        """Feed T tokens per row, from the state before its first one, and keep those after each.

        Parameters
        ----------
        ids : Tensor [B, T], int64
        start : ndarray [B], int64
            Position of the first token of each row; everything before it must have been fed.
        keep : int
            Return the logits of the last ``keep`` tokens only; 0: of all.

        Returns
        -------
        Tensor [B, T or keep, vocab], in the model's dtype
        """
        width = ids.shape[1]
        if int(start.max()) + width > self.capacity:
            raise ValueError(
                f"{int(start.max()) + width} positions do not fit a cache of {self.capacity}"
            )
        if self._cache is None:
            self._begin(ids)
        position = to_device(start, self.device)
        self.restore(position)
        logits, features = [], []
        for step in range(width):
            output = self.model(
                input_ids=ids[:, step : step + 1],
                use_cache=True,
                **{self._cache_name: self._cache},
                **self._told,
                **({"output_hidden_states": True} if self.depths else {}),
            )
            logits.append(output.logits)
            features.append(features_of(output, self.depths))
            self.save(position + step + 1)
        self.features = (
            torch.cat([f for f in features if f is not None], 1) if self.depths else None
        )
        return fit_vocabulary(torch.cat(logits[-keep:], 1), self.vocab)

    def restore(self, position: Tensor) -> None:
        """Go back to the states before ``position`` [B]."""
        row = torch.arange(len(position), device=self.device)
        for state, saved in zip(states_of(self._cache), self._saved, strict=True):
            state.copy_(saved[row, position])

    def save(self, position: Tensor) -> None:
        """Keep the present states as those before ``position`` [B]."""
        row = torch.arange(len(position), device=self.device)
        for state, saved in zip(states_of(self._cache), self._saved, strict=True):
            saved[row, position] = state

    def _begin(self, ids: Tensor) -> None:
        """Allocate for the rows of ``ids``; a model makes its own cache, in its first call."""
        output = self.model(input_ids=ids[:, :1], use_cache=True)
        self._cache = getattr(output, self._cache_name)
        if not self._saved:  # the state before position 0 is zero
            states = states_of(self._cache)
            slots = self.capacity + 1
            self._saved = [s.new_zeros(len(s), slots, *s.shape[1:]) for s in states]

    def take(self, row: int, length: int) -> States:
        """Copy the states before every of a row's first ``length`` + 1 positions."""
        return [(saved[row, : length + 1].clone(),) for saved in self._saved]

    def put(self, rows: Sequence[int], states: States, batch: int) -> None:
        """Write the states of a text into some rows of a batch of ``batch`` rows.

        What the rows have no slots for is left out.
        """
        if not self._saved:
            shapes = ((kept, (batch, self.capacity + 1, *kept.shape[1:])) for (kept,) in states)
            self._saved = [kept.new_zeros(shape) for kept, shape in shapes]
        index = torch.tensor(rows, device=self.device)
        for saved, (kept,) in zip(self._saved, states, strict=False):
            length = min(len(kept), saved.shape[1])
            saved[index, :length] = kept[:length]

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows (int64 indices, on the model's device)."""
        self._saved = [saved[rows] for saved in self._saved]
        self._cache = None  # it has as many rows as it was made for


def cached_model(
    model: PreTrainedModel,
    capacity: int,
    vocab: int,
    keys: type[CachedModel] = CachedModel,
    states: type[CachedModel] = RecurrentModel,
) -> CachedModel:
    """The model with an empty cache of its own kind: of ``keys`` and values, or of ``states``.

    Raises
    ------
    ValueError
        At the first call of a model whose states are neither of the two, or both.
    """
    kind = states if is_recurrent(model) else keys
    return kind(model, capacity, vocab)


def is_recurrent(model: PreTrainedModel) -> bool:
    """Whether a model has states that are not keys and values."""
    return bool(getattr(model, "_is_stateful", False))


def position_bytes(model: PreTrainedModel) -> int:
    """Bytes of what is kept of one position of one row."""
    config = model.config.get_text_config()
    if not is_recurrent(model):
        return int(2 * config.num_hidden_layers * config.hidden_size * model.dtype.itemsize)
    probe = RecurrentModel(model, 1, 1)
    probe._begin(torch.zeros(1, 1, dtype=torch.int64, device=probe.device))
    return sum(state.nbytes for state in states_of(probe._cache))


def states_of(cache: Any) -> list[Tensor]:
    """All state tensors of a cache, [B, ...] each, to be read and written in place."""
    layers = getattr(cache, "layers", None)
    if layers is None:  # older transformers
        return [*cache.conv_states, *cache.ssm_states]
    states: list[Tensor] = []
    for layer in layers:
        if not hasattr(layer, "recurrent_states") or getattr(layer, "keys", None) is not None:
            raise ValueError(
                f"{type(layer).__name__}: only models with recurrent states in every layer are "
                "known here, or with keys and values in every layer"
            )
        for kind in (layer.conv_states, layer.recurrent_states):
            found = kind.values() if isinstance(kind, dict) else [kind]
            states += [state for state in found if state is not None]
    return states
