"""The contract between the harness and a decoder: what is asked, what comes back.

Token ids everywhere; nothing here knows a tokenizer, a model or a framework.
This module imports nothing else from the project.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

CAPABILITIES: Mapping[str, str] = {
    "greedy": "temperature 0",
    "sampling": "temperature > 0",
    "top_k": "keeps the k most likely tokens",
    "top_p": "nucleus filter",
    "min_p": "drops tokens below min_p times the most likely one",
    "penalties": "repetition, presence and frequency penalty",
    "min_new_tokens": "no EOS before that many new tokens",
    "logit_bias": "adds a constant to the logits of single tokens",
    "grammar": "emits only tokens that a finite automaton over ids allows",
    "eos": "stops at any of the request's EOS ids",
    "stop": "stops after any of the request's stop sequences of ids",
    "seed": "the same seed, alone and again, gives the same ids",
    "batch": "several requests in one call are decoded together",
    "logprobs": "returns the log probability of every emitted token",
    "stream": "has stream(request), which yields the new ids in pieces as they are made",
    "metrics": "returns counts, rates and times of its own",
    "rounds": "returns drafted and accepted counts of every round",
    "model_draft": "rounds: proposals are drawn from the pair's draft under the request's own "
    "sampling parameters",
    "plain": "can run the same request with speculation off",
    "validates": "raises ValueError on a request that makes no sense",
    "exact_law": "has rule(target, propose, request, randomness), which asks us for randomness",
    "declared_lossy": "does not claim the target's law: measured, never called lossless",
}


class Grammar(msgspec.Struct, frozen=True):
    """A finite automaton over token ids: which tokens may follow.

    Attributes
    ----------
    states : tuple of dict of int to int
        ``states[s]`` maps every token that is allowed in state s to the state it leads to. An
        output begins in state 0. A state that allows nothing may only be reached by the token
        that ends the output.
    """

    states: tuple[dict[int, int], ...]

    def walk(self, tokens: Sequence[int], state: int = 0) -> int | None:
        """The state after ``tokens``, None where one of them is not allowed."""
        for token in tokens:
            if token not in self.states[state]:
                return None
            state = self.states[state][token]
        return state


class Sampling(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """How the next token is drawn from the target's logits.

    The order of application is that of transformers' ``generate``: logit_bias,
    repetition penalty, presence and frequency penalty, min_new_tokens, grammar, temperature,
    top_k, top_p, min_p (see ``reference_impl.sampling``).

    Attributes
    ----------
    temperature : float
        0 is greedy decoding, and switches the filters off.
    top_k : int
        0 keeps all tokens.
    top_p, min_p : float
        1 and 0 keep all tokens.
    repetition_penalty : float
        Over prompt and output (Keskar et al. 2019); 1 is neutral.
    presence_penalty, frequency_penalty : float
        Over the output only, subtracted from the logits; 0 is neutral.
    min_new_tokens : int
        EOS is impossible before that many new tokens.
    logit_bias : dict of int to float
        Added to the logits of the named tokens.
    grammar : Grammar or None
        Tokens that it does not allow are impossible.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_new_tokens: int = 0
    logit_bias: dict[int, float] = {}
    grammar: Grammar | None = None

    @property
    def greedy(self) -> bool:
        """Whether the next token is the argmax."""
        return self.temperature == 0

    @property
    def needs_history(self) -> bool:
        """Whether the law depends on the tokens before it other than through the logits."""
        return self.penalised or self.grammar is not None

    @property
    def penalised(self) -> bool:
        """Whether tokens that occurred before are more or less likely for that."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def capabilities(self) -> set[str]:
        """Capabilities that a decoder must declare to take this."""
        needed = {"greedy" if self.greedy else "sampling"}
        if self.top_k:
            needed.add("top_k")
        if self.top_p < 1:
            needed.add("top_p")
        if self.min_p:
            needed.add("min_p")
        if self.penalised:
            needed.add("penalties")
        if self.min_new_tokens:
            needed.add("min_new_tokens")
        if self.logit_bias:
            needed.add("logit_bias")
        if self.grammar is not None:
            needed.add("grammar")
        return needed


class Request(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One generation.

    Attributes
    ----------
    prompt : tuple of int
        Token ids, at least one.
    max_new_tokens : int
        At least 1.
    sampling : Sampling
    seed : int or None
        None: the decoder's own randomness, independent from call to call.
    eos : tuple of int
        Output ends with (and includes) the first of these.
    stop : tuple of tuple of int
        Output ends with (and includes) the first of these sequences of new tokens.
    speculate : bool
        False asks for plain decoding on the same path.
    draft_tokens : int
        K, the proposed tokens of one round, at least 1.
    logprobs : bool
        Asks for the log probability of every new token under its sampling law; at temperature 1
        where that is greedy.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = Sampling()
    seed: int | None = None
    eos: tuple[int, ...] = ()
    stop: tuple[tuple[int, ...], ...] = ()
    speculate: bool = True
    draft_tokens: int = 4
    logprobs: bool = False

    def capabilities(self) -> set[str]:
        """Capabilities that a decoder must declare to take this."""
        needed = self.sampling.capabilities()
        if self.eos:
            needed.add("eos")
        if self.stop:
            needed.add("stop")
        if self.seed is not None and not self.sampling.greedy:
            needed.add("seed")
        if not self.speculate:
            needed.add("plain")
        if self.logprobs:
            needed.add("logprobs")
        return needed


class Round(msgspec.Struct, frozen=True):
    """One draft-and-verify step: ``accepted`` of ``drafted`` tokens, then one of the target's."""

    drafted: int
    accepted: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What a decoder says of one answer; None for what it does not count.

    Attributes
    ----------
    tokens : int
        New tokens of the answer.
    target_calls : int
        Forward passes of the target that gave them, without those that only read the prompt.
    target_tokens : int
        Positions of this request that the target computed, the prompt's included.
    drafted, accepted : int
    acceptance_rate : float
        accepted / drafted; 0 where nothing was drafted.
    seconds : float
        From taking the request up to its last token, with speculation and without.
    tokens_per_second : float
        tokens / seconds.
    prompt_seconds, draft_seconds, verify_seconds : float
        Parts of ``seconds``: the target's pass over the prompt, everything of the drafter, and the
        target's passes after the prompt. For all requests that were decoded together.
    """

    tokens: int | None = None
    target_calls: int | None = None
    target_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    acceptance_rate: float | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    prompt_seconds: float | None = None
    draft_seconds: float | None = None
    verify_seconds: float | None = None


FinishReason = Literal["eos", "stop", "length"]


class Completion(msgspec.Struct, kw_only=True, repr_omit_defaults=True):
    """What a decoder answers to one request.

    Attributes
    ----------
    tokens : list of int
        New ids only; the EOS or stop sequence that ended the output is included.
    finish_reason : str
        ``eos``, ``stop`` or ``length``.
    logprobs : list of float or None
        Natural logarithm, one a token.
    rounds : list of Round or None
        One a target call.
    metrics : Metrics or None
    """

    tokens: list[int]
    finish_reason: FinishReason
    logprobs: list[float] | None = None
    rounds: list[Round] | None = None
    metrics: Metrics | None = None


@runtime_checkable
class Decoder(Protocol):
    """A system under test. Any object with these two attributes is one.

    It may have ``versions``, a dict of names to versions, and ``retries``, how many requests it had
    to send again so far (to a server, say): both go into the record.
    """

    capabilities: frozenset[str]

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode every request, in order."""
        ...


@runtime_checkable
class StreamingDecoder(Decoder, Protocol):
    """A decoder that declares ``stream``."""

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Decode one request, and yield its new ids in pieces as they are made.

        Together they are what ``generate`` answers. The caller may close the iterator at any
        time: the request is then cancelled.
        """
        ...


@runtime_checkable
class ClosingDecoder(Decoder, Protocol):
    """A decoder that holds a process, a server or a connection."""

    def close(self) -> None:
        """Let go of it; the decoder is not asked again."""
        ...


class Limits(Protocol):
    """What a request is checked against; a ``ModelPair`` is one."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def context_length(self) -> int:
        """Longest prompt plus output, in tokens."""
        ...


def validate(request: Request, limits: Limits) -> None:
    """Raise ValueError, in one line that says what to do, if the request makes no sense."""
    s, vocab = request.sampling, limits.vocab_size
    if not request.prompt:
        raise ValueError("empty prompt: give at least one token id (a BOS id, for instance)")
    ids = [
        *request.prompt,
        *request.eos,
        *s.logit_bias,
        *(t for stop in request.stop for t in stop),
        *(t for state in (s.grammar.states if s.grammar else ()) for t in state),
    ]
    for token in ids:
        if not 0 <= token < vocab:
            raise ValueError(f"token id {token} is outside the vocabulary 0..{vocab - 1}")
    if not all(request.stop):
        raise ValueError("empty stop sequence: leave it out")
    if request.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {request.max_new_tokens}: ask for at least 1")
    total = len(request.prompt) + request.max_new_tokens
    if total > limits.context_length:
        raise ValueError(
            f"prompt ({len(request.prompt)}) + max_new_tokens ({request.max_new_tokens}) = {total} "
            f"exceeds the context of {limits.context_length} tokens: shorten one of them"
        )
    if request.draft_tokens < 1:
        raise ValueError(
            f"draft_tokens is {request.draft_tokens}: at least 1 (speculate=False switches it off)"
        )
    if s.min_new_tokens and set(request.eos) >= set(range(vocab)):
        raise ValueError("min_new_tokens forbids every token: all of them are EOS ids")
    if s.grammar:
        _validate_grammar(s.grammar, request)
    ranges = [
        (
            s.temperature == 0 or 1e-6 <= s.temperature < math.inf,
            "temperature",
            s.temperature,
            "0 (greedy), or at least 1e-6",
        ),
        (s.top_k >= 0, "top_k", s.top_k, "0 (all) or above"),
        (0 < s.top_p <= 1, "top_p", s.top_p, "in (0, 1]"),
        (0 <= s.min_p <= 1, "min_p", s.min_p, "in [0, 1]"),
        (
            0 < s.repetition_penalty < math.inf,
            "repetition_penalty",
            s.repetition_penalty,
            "above 0 and finite",
        ),
        (math.isfinite(s.presence_penalty), "presence_penalty", s.presence_penalty, "finite"),
        (math.isfinite(s.frequency_penalty), "frequency_penalty", s.frequency_penalty, "finite"),
        *(
            (bias < math.inf, "logit_bias", bias, "finite, or -inf for a banned token")
            for bias in s.logit_bias.values()
        ),
        (s.min_new_tokens >= 0, "min_new_tokens", s.min_new_tokens, "0 or above"),
    ]
    for valid, name, value, allowed in ranges:
        if not valid:
            raise ValueError(f"{name} is {value}: it must be {allowed}")


def _validate_grammar(grammar: Grammar, request: Request) -> None:
    count = len(grammar.states)
    if not grammar.states or not grammar.states[0]:
        raise ValueError("the grammar allows no first token: give state 0 at least one")
    for number, state in enumerate(grammar.states):
        for token, following in state.items():
            if not 0 <= following < count:
                raise ValueError(f"grammar state {number} leads to state {following} of {count}")
            if not grammar.states[following] and token not in request.eos:
                raise ValueError(
                    f"token {token} in grammar state {number} leads to a state that allows no "
                    "token: make it an EOS id, or let something follow"
                )
        if state and request.sampling.min_new_tokens and set(state) <= set(request.eos):
            raise ValueError(
                f"min_new_tokens forbids every token that grammar state {number} allows: all of "
                "them are EOS ids"
            )
