"""The requests that are decoded together, and how far each of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from harness.contract import Completion, FinishReason, Metrics, Request, Round
from reference_impl.autoregressive import finished
from reference_impl.cache import Ints
from reference_impl.clock import Clock
from reference_impl.randomness import Streams
from reference_impl.sampling import History, Parameters
from reference_impl.transfers import to_device


@dataclass
class Output:
    """What is kept of a request when its row is done."""

    rounds: list[Round] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    target_tokens: int = 0
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


class Batch:
    """State of the rows in flight. Bookkeeping lives on the host, laws on the device.

    Attributes
    ----------
    requests : list of Request
        One a row.
    tokens : ndarray [B, C], int64
        Prompt and output of every row.
    length : ndarray [B], int64
        How many of them there are.
    prompt_length : ndarray [B], int64
    active : ndarray [B], bool
        Rows that still decode.
    parameters : Parameters
    history : History or None
        None where no row has a penalty or a grammar.
    streams : Streams
    clock : Clock
    """

    def __init__(
        self,
        requests: Sequence[Request],
        vocab: int,
        device: torch.device,
        synchronise: Callable[[], None] | None = None,
    ) -> None:
        self.clock = Clock(synchronise)
        self.requests = list(requests)
        self.outputs = [Output() for _ in requests]
        self.index = np.arange(len(requests))
        self.device = device
        self.prompt_length = np.array([len(r.prompt) for r in requests])
        self.length = self.prompt_length.copy()
        self.limit = self.prompt_length + np.array([r.max_new_tokens for r in requests])
        self.tokens = np.zeros((len(requests), int(self.limit.max())), dtype=np.int64)
        for row, request in enumerate(requests):
            self.tokens[row, : len(request.prompt)] = request.prompt
        # K beyond the output's length is the same as that length, and must not size the cache.
        self.draft_tokens = np.array(
            [min(r.draft_tokens, r.max_new_tokens) if r.speculate else 0 for r in requests]
        )
        self.active = np.ones(len(requests), dtype=bool)
        self.parameters = Parameters.of(requests, vocab, device)
        self.streams = Streams([r.seed for r in requests], device)
        self.history: History | None = None
        if self.parameters.needs_history:
            self.history = History.of(requests, [()] * len(requests), vocab, device)
        self._eos = _padded([r.eos for r in requests])
        self._stops = np.array([bool(r.stop) for r in requests])

    def __len__(self) -> int:
        return len(self.requests)

    def texts_but_last(self) -> Tensor:
        """All but the last token of every row's text, padded at the end, [B, T] on the device."""
        return to_device(self.tokens[:, : int(self.length.max()) - 1], self.device)

    def tokens_from(self, start: Ints, count: int) -> Ints:
        """``count`` tokens of every row from index ``start`` [B] on, padded, [B, count]."""
        columns = np.minimum(start[:, None] + np.arange(count), self.tokens.shape[1] - 1)
        return np.take_along_axis(self.tokens, columns, 1)

    def room(self) -> Ints:
        """Tokens that may be drafted now, [B]: the round ends with one more of the target's."""
        left = np.minimum(self.draft_tokens, self.limit - self.length - 1)
        return np.where(self.active, left, 0)

    def new_tokens(self) -> Tensor:
        """Length of every row's output, [B] on the device."""
        return to_device(self.length - self.prompt_length, self.device)

    def cut(self, emitted: Ints, count: Ints) -> Ints:
        """How many of the emitted tokens to keep, [B]: up to the first that ends the output.

        Parameters
        ----------
        emitted : ndarray [B, T]
        count : ndarray [B]
            Tokens that the round emitted; the rest of a row is padding.
        """
        kept = self.cut_at_eos(emitted, count)
        for row in np.flatnonzero(self._stops & self.active):
            kept[row] = self._cut_at_stop(int(row), emitted[row, : kept[row]].tolist())
        return kept

    def cut_at_eos(self, emitted: Ints, count: Ints) -> Ints:
        """The same where stop sequences end nothing: up to EOS or the length, [B]."""
        width = emitted.shape[1]
        ends = (emitted[:, :, None] == self._eos[:, None, :]).any(2)
        first = np.where(ends.any(1), ends.argmax(1) + 1, width)
        kept = np.minimum(np.minimum(count, first), self.limit - self.length)
        return np.where(self.active, kept, 0)

    def _cut_at_stop(self, row: int, emitted: list[int]) -> int:
        output = self.output(row)
        for n in range(1, len(emitted) + 1):
            if finished([*output, *emitted[:n]], self.requests[row]):
                return n
        return len(emitted)

    def output(self, row: int) -> list[int]:
        """New tokens of a row so far."""
        tokens: list[int] = self.tokens[row, self.prompt_length[row] : self.length[row]].tolist()
        return tokens

    def append(self, emitted: Ints, kept: Ints) -> None:
        """Take the first ``kept`` [B] tokens of ``emitted`` [B, T] into the rows."""
        valid = np.arange(emitted.shape[1]) < kept[:, None]
        row, column = np.nonzero(valid)
        self.tokens[row, self.length[row] + column] = emitted[valid]
        self.length = self.length + kept
        if self.history is not None:
            self.history = self.history.extended(
                to_device(emitted, self.device), to_device(valid, self.device)
            )

    def fed(self, count: Ints) -> None:
        """The target was fed ``count`` [B] more tokens of the rows that still decode."""
        for row in np.flatnonzero(self.active):
            self.outputs[row].target_tokens += int(count[row])

    def finish(self) -> None:
        """Mark the rows that have ended."""
        last = self.tokens[np.arange(len(self)), self.length - 1]
        over = (last[:, None] == self._eos).any(1) | (self.length >= self.limit) | self._stops
        for row in np.flatnonzero(over & self.active):
            reason = finished(self.output(int(row)), self.requests[row])
            self.outputs[row].finish_reason = reason
            self.outputs[row].seconds = self.clock.since_begin()
            self.outputs[row].parts = dict(self.clock.parts)
            self.active[row] = reason is None

    def completion(self, row: int) -> Completion:
        """The answer of a finished row."""
        output = self.outputs[row]
        assert output.finish_reason is not None
        return Completion(
            tokens=self.output(row),
            finish_reason=output.finish_reason,
            rounds=output.rounds,
            logprobs=output.logprobs if self.requests[row].logprobs else None,
            metrics=self.metrics(row),
        )

    def metrics(self, row: int) -> Metrics:
        """Counts, rates and times of a finished row."""
        output, tokens = self.outputs[row], int(self.length[row] - self.prompt_length[row])
        drafted = sum(entry.drafted for entry in output.rounds)
        accepted = sum(entry.accepted for entry in output.rounds)
        return Metrics(
            tokens=tokens,
            target_calls=len(output.rounds),
            target_tokens=output.target_tokens,
            drafted=drafted,
            accepted=accepted,
            acceptance_rate=accepted / drafted if drafted else 0.0,
            seconds=output.seconds,
            tokens_per_second=tokens / output.seconds,
            **{f"{name}_seconds": seconds for name, seconds in output.parts.items()},
        )

    def select(self, rows: Ints) -> None:
        """Keep only the given rows."""
        self.requests = [self.requests[r] for r in rows]
        self.outputs = [self.outputs[r] for r in rows]
        for name in ("index", "prompt_length", "length", "limit", "tokens", "draft_tokens"):
            setattr(self, name, getattr(self, name)[rows])
        self.active, self._eos, self._stops = self.active[rows], self._eos[rows], self._stops[rows]
        on_device = to_device(rows, self.device)
        self.parameters = self.parameters.rows(on_device)
        self.streams.select(on_device)
        if self.history is not None:
            self.history = self.history.rows(on_device)


def _padded(lists: Sequence[Sequence[int]]) -> Ints:
    """Lists of ids as one array, filled up with -1, which no token equals."""
    width = max([1, *map(len, lists)])
    return np.array([[*ids, *[-1] * (width - len(ids))] for ids in lists], dtype=np.int64)
