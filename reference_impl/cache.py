"""A transformers causal LM with a KV cache whose rows have lengths of their own.

Slot j of a row holds position j of that row's sequence, so a row is rolled back by writing over
it: the mask hides every slot beyond the position that asks. Rows of one batch may therefore
accept different numbers of tokens without padding in the middle and without moving anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from reference_impl.compiled import rounded_up, static_forward
from reference_impl.layout import Layout
from reference_impl.transfers import to_device

Ints = NDArray[np.int64]
States = list[tuple[Tensor, ...]]
"""What a cache holds of one text, a layer at a time: keys and values, [heads, n, head_dim]."""


class _Slots:
    """Where the tokens of the forward pass in progress go, shared by all layers."""

    def __init__(self, capacity: int, static: bool) -> None:
        self.capacity = capacity
        self.static = static
        self.visible = 0  # slots that the attention may see
        self.first: int | None = None  # first slot, where all rows write to the same ones
        self.rows = torch.empty(0)  # [B, 1]
        self.slots = torch.empty(0)  # [B, T]


class _RaggedLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer: two tensors [B, heads, capacity, head_dim]."""

    is_sliding = False

    def __init__(self, where: _Slots) -> None:
        super().__init__()
        self.where = where

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate once the shapes are known."""
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        if self.where.static:  # a graph that is replayed has to find them again
            for states in (self.keys, self.values):
                torch._dynamo.mark_static_address(states)
        self.is_initialized = True

    def _allocate(self, states: Tensor) -> Tensor:
        rows, heads, _, width = states.shape
        return states.new_zeros(rows, heads, self.where.capacity, width)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new states, return all that may be seen."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def _write(self, stored: Tensor, states: Tensor) -> Tensor:
        where = self.where
        if where.first is not None:
            stored[:, :, where.first : where.first + states.shape[2]] = states
        else:
            stored[where.rows, :, where.slots] = states.transpose(1, 2)
        return stored[:, :, : where.visible]

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """Length and offset of what ``update`` will return."""
        return self.where.visible, 0

    def get_seq_length(self) -> int:
        """Slots in use, for models that ask; positions are always passed explicitly."""
        return self.where.visible

    def get_max_length(self) -> int:
        """Fixed capacity."""
        return self.where.capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class CachedModel:
    """A causal LM and the cached states of a batch of sequences.

    The caller says where every row continues; nothing here remembers how much of a row is valid.

    Parameters
    ----------
    model : PreTrainedModel
        Any transformers causal LM whose states are keys and values, with ``sdpa`` or ``eager``
        attention.
    capacity : int
        Slots per row.
    vocab : int
        Columns of the returned logits: wider models are cut (padding of the output matrix),
        narrower ones are filled with -inf.

    Attributes
    ----------
    depths : tuple of int
        After how many layers the states of tokens are wanted, for drafters that read them; -1: what
        goes into the head.
    features : Tensor [B, T, sum of widths] or None
        Those states of the tokens that were fed last, side by side.
    """

    depths: tuple[int, ...] = ()
    features: Tensor | None = None

    def __init__(self, model: PreTrainedModel, capacity: int, vocab: int) -> None:
        self.model = model
        self.vocab = vocab
        config = model.config.get_text_config()
        self.device = next(model.parameters()).device
        self.positions = int(getattr(config, "max_position_embeddings", 0) or capacity)
        self.window = sliding_window(config)
        self.eager = config._attn_implementation == "eager"
        static = static_forward(model) is not None
        self._where = _Slots(rounded_up(capacity) if static else capacity, static)
        self._cache = Cache(
            layers=[_RaggedLayer(self._where) for _ in range(config.num_hidden_layers)]
        )
        names = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in names
        self._cache_name = cache_argument(model)

    def prefill(self, ids: Tensor) -> None:
        """Feed the first T tokens of every row, [B, T]; shorter rows are padded at the end."""
        if ids.shape[1]:
            self.forward(ids, np.zeros(ids.shape[0], dtype=np.int64), keep=1)

    def forward(self, ids: Tensor, start: Ints, keep: int = 0) -> Tensor:
        """Feed T tokens per row, and store their states.

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
            A row's tokens may be followed by padding: it is written beyond the row's end, where
            nobody looks, and its logits mean nothing.
        """
        keeping = {"logits_to_keep": keep} if self._keeps else {}
        output = self._run(start, ids.shape[1], input_ids=ids, **keeping)
        return fit_vocabulary(output.logits, self.vocab)

    def states(self, embeddings: Tensor, start: Ints | Layout) -> Tensor:
        """Feed embeddings [B, T, D] to a model without a head; its last states, [B, T, D]."""
        output = self._run(start, embeddings.shape[1], inputs_embeds=embeddings)
        last: Tensor = output.last_hidden_state
        return last

    def tree(self, ids: Tensor, layout: Layout) -> Tensor:
        """Feed the nodes [B, T] of a tree; their logits [B, T, vocab]."""
        return fit_vocabulary(self._run(layout, ids.shape[1], input_ids=ids).logits, self.vocab)

    def _run(self, start: Ints | Layout, width: int, **inputs: Any) -> Any:
        """Feed ``width`` tokens per row; what the model returns."""
        where = self._where
        if isinstance(start, Layout):
            position, where.slots, where.visible = start.positions(), start.slots(), start.visible
            where.first = None
        else:
            steps = torch.arange(width, device=self.device)
            position = to_device(start, self.device).unsqueeze(1) + steps
            where.slots, where.visible = position, int(start.max()) + width
            where.first = int(start[0]) if (start == start[0]).all() else None
        if where.visible > where.capacity:
            raise ValueError(f"{where.visible} positions do not fit a cache of {where.capacity}")
        call: Any = self.model
        if where.static and not isinstance(start, Layout):
            where.first, where.visible = None, where.capacity
            if self._cache.layers[0].is_initialized:  # the first call is the prompt's as a rule
                call = static_forward(self.model)
        where.rows = torch.arange(len(position), device=self.device).unsqueeze(1)
        tree = start if isinstance(start, Layout) else None
        output = call(
            attention_mask=self._mask(position) if tree is None else self._tree_mask(tree),
            # Padding may run past the last position that a table of embeddings has.
            position_ids=self.position_ids(position).clamp(max=self.positions - 1),
            use_cache=True,
            **{self._cache_name: self._cache},
            **({"output_hidden_states": True} if self.depths else {}),
            **inputs,
        )
        self.features = features_of(output, self.depths)
        return output

    def position_ids(self, position: Tensor) -> Tensor:
        """What the model is told of the places [B, T] of its tokens."""
        return position

    def _mask(self, position: Tensor) -> Tensor | dict[str, Tensor] | None:
        """Slot j is seen from position i if i - window < j <= i; [B, 1, T, visible]."""
        if position.shape == (1, 1) and not self.window and not self._where.static:
            return None  # one token sees every slot there is
        slot = torch.arange(self._where.visible, device=self.device)
        return self._windowed((slot <= position.unsqueeze(2)).unsqueeze(1), slot, position)

    def _tree_mask(self, layout: Layout) -> Tensor | dict[str, Tensor]:
        seen, places = layout.seen()
        return self._windowed(seen.unsqueeze(1), places.unsqueeze(1), layout.positions())

    def _windowed(
        self, seen: Tensor, places: Tensor, position: Tensor
    ) -> Tensor | dict[str, Tensor]:
        """The mask of what is seen [B, 1, T, N] and not too far back, as the model wants it.

        Parameters
        ----------
        seen : Tensor [B, 1, T, N], bool
        places : Tensor [N] or [B, 1, N], int64
            Positions that the slots hold.
        position : Tensor [B, T], int64
            Positions that ask.
        """
        if not self.window:
            return self._additive(seen)
        near = seen & self.within_window(places, position.unsqueeze(2)).unsqueeze(1)
        kinds = set(getattr(self.model.config.get_text_config(), "layer_types", None) or [])
        if len(kinds) > 1:
            both = {"full_attention": seen, "sliding_attention": near}
            return {kind: self._additive(mask) for kind, mask in both.items()}
        return self._additive(near)

    def within_window(self, slot: Tensor, position: Tensor) -> Tensor:
        """Which slots [N] are not too far back, [B, T, N], for positions [B, T, 1]."""
        return slot > position - self.window

    def _additive(self, seen: Tensor) -> Tensor:
        if not self.eager:
            return seen
        dtype = self.model.dtype
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)

    def move(self, start: Ints, path: Tensor) -> None:
        """Make a path through the tree behind the text a chain: path[i] moves to slot start + i.

        ``features``, where there are any, become those of the path.

        Parameters
        ----------
        start : ndarray [B], int64
            Tokens of each row's text.
        path : Tensor [B, T], int64
            Nodes in ascending order.
        """
        first = to_device(start, self.device).unsqueeze(1)
        row = torch.arange(len(path), device=self.device).unsqueeze(1)
        to = first + torch.arange(path.shape[1], device=self.device)
        for layer in self._cache.layers:
            for states in (layer.keys, layer.values):
                states[row, :, to] = states[row, :, first + path]
        if self.features is not None:
            self.features = self.features[row, path]

    def take(self, row: int, length: int) -> States:
        """Copy the states of a row's first ``length`` tokens; nothing, if none was ever fed."""
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone())
            for layer in self._cache.layers
            if layer.is_initialized
        ]

    def put(self, rows: Sequence[int], states: States, batch: int) -> None:
        """Write the states of a text into some rows of a batch of ``batch`` rows.

        What the rows have no slots for is left out.
        """
        index = torch.tensor(rows, device=self.device)
        for layer, kept in zip(self._cache.layers, states, strict=False):
            if not layer.is_initialized:
                layer.lazy_initialization(*(x.expand(batch, *x.shape) for x in kept))
            length = min(kept[0].shape[1], self._where.capacity)
            layer.keys[index, :, :length] = kept[0][:, :length]
            layer.values[index, :, :length] = kept[1][:, :length]

    def select(self, rows: Tensor) -> None:
        """Keep only the given rows (int64 indices, on the model's device)."""
        for layer in self._cache.layers:
            if layer.is_initialized:
                layer.keys, layer.values = layer.keys[rows], layer.values[rows]


def features_of(output: Any, depths: Sequence[int]) -> Tensor | None:
    """States of the tokens of a forward pass after so many layers, side by side, [B, T, D]."""
    if not depths:
        return None
    return torch.cat([output.hidden_states[depth] for depth in depths], -1)


def cache_argument(model: PreTrainedModel) -> str:
    """Name under which a model takes its cache; transformers renamed it in 5.2x."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def fit_vocabulary(logits: Tensor, vocab: int) -> Tensor:
    """Drop or add columns: [..., any] -> [..., vocab]; added ones are impossible tokens."""
    missing = vocab - logits.shape[-1]
    if missing > 0:
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
    return logits[..., :vocab]


def sliding_window(config: Any) -> int:
    """Sliding window in tokens, 0 for none."""
    kinds = getattr(config, "layer_types", None)
    if kinds and "sliding_attention" not in kinds:
        return 0
    if getattr(config, "use_sliding_window", True) is False:
        return 0
    return int(getattr(config, "sliding_window", None) or 0)
