"""A decoder under test together with what it is tested on, and the way checks talk to it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, cast

import msgspec

from harness.adapters import DecoderError, load_decoder
from harness.checks.form import disordered, malformed, no_token, wrong_logprobs
from harness.checks.reproduce import Call, rerun
from harness.checks.reproduce import repro as repro
from harness.contract import (
    ClosingDecoder,
    Completion,
    Decoder,
    Request,
    StreamingDecoder,
)
from harness.models import ModelPair, NoWeightsError
from harness.said import words_of
from harness.verdict import FaultClass, Status, Unsupported, Verdict

Parameters = ParamSpec("Parameters")
MOST_IN_REPRO = 32  # requests
ENDLESS = 64  # times as long as it may be, a stream is not read on
NOTHING_TO_ASK = "no request of this check is within the declared capabilities"


@dataclass(frozen=True)
class Subject:
    """A system under test.

    Attributes
    ----------
    decoder : Decoder
    pair : ModelPair
    name : str
        What ``load_decoder`` takes, for reproductions.
    options : dict of str to str
    loaded_with : dict of str to str
        What ``load_pair`` takes, for reproductions; its name, if not given.
    """

    decoder: Decoder
    pair: ModelPair
    name: str
    options: dict[str, str] = field(default_factory=dict)
    loaded_with: dict[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """What the decoder says it is made of."""
        return dict(getattr(self.decoder, "versions", {}))

    @property
    def retries(self) -> int:
        """Requests that the decoder had to send again so far, if it counts them."""
        return int(getattr(self.decoder, "retries", 0))

    def supports(self, request: Request) -> bool:
        """Whether the decoder declares all that the request asks for."""
        return request.capabilities() <= self.decoder.capabilities

    def require(self, *needed: str) -> None:
        """Unsupported, unless the decoder declares these capabilities."""
        if missing := sorted(set(needed) - self.decoder.capabilities):
            raise Unsupported(f"the decoder does not declare: {', '.join(missing)}")

    def require_one_of(self, *alternatives: str) -> None:
        """Unsupported, unless the decoder declares at least one of these capabilities."""
        if not self.decoder.capabilities & set(alternatives):
            raise Unsupported(f"the decoder declares none of: {', '.join(alternatives)}")

    def ask(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate, and make sure that the answer has the contract's form.

        Raises
        ------
        Refused
            If it has not, or the decoder raises; the message says how.
        """
        try:
            completions = self.decoder.generate(list(requests))
        except Exception as error:  # a stranger's decoder may raise anything
            raise Refused(
                f"the decoder raised {type(error).__name__}: {words_of(error)}", requests
            ) from error
        if not isinstance(completions, list) or len(completions) != len(requests):
            answer = f"a {type(completions).__name__}"
            if isinstance(completions, list):
                answer = f"{len(completions)} completions"
            raise Malformed(f"{len(requests)} requests were answered by {answer}", requests)
        if problem := disordered(requests, completions):
            raise Malformed(problem, requests)
        for request, completion in zip(requests, completions, strict=True):
            if problem := malformed(completion, self.pair.vocab_size):
                raise Malformed(f"malformed output: {problem}", [request])
            if problem := wrong_logprobs(request, completion):
                raise Malformed(f"malformed output: {problem}", [request], FaultClass.LOGPROBS)
        return completions

    def stream(self, request: Request, most: int | None = None) -> list[list[int]]:
        """The pieces of a stream that is read to its end, or closed after the first ``most``.

        Raises
        ------
        Refused
            If it raises, or yields anything but lists of token ids.
        """
        try:
            iterator = cast(StreamingDecoder, self.decoder).stream(request)
            pieces = list(itertools.islice(_finite(iterator, request), most))
            if most is not None:
                cast(Generator[list[int], None, None], iterator).close()
        except Exception as error:
            problem = f"the stream raised {type(error).__name__}: {words_of(error)}"
            raise Refused(problem, [request]) from error
        for piece in pieces:
            if not isinstance(piece, list):
                problem = f"a piece is a {type(piece).__name__}, not a list"
                raise Malformed(f"malformed stream: {problem}", [request])
            if problem := no_token(piece, self.pair.vocab_size):
                raise Malformed(f"malformed stream: {problem}", [request])
        return pieces

    def make(self, call: Call) -> list[Completion]:
        """The answers to one call; of a stream, what came of it until it was closed."""
        if call.pieces is None:
            return self.ask(call.requests)
        pieces = self.stream(call.requests[0], call.pieces)
        return [Completion(tokens=[t for piece in pieces for t in piece], finish_reason="length")]

    def anew(self) -> Subject:
        """The same decoder built once more; this one, if its name does not lead to it.

        Nor is one built again that has something to close: a process, or a server.
        """
        if isinstance(self.decoder, ClosingDecoder):
            return self
        try:
            return replace(self, decoder=load_decoder(self.name, self.pair, self.options))
        except DecoderError:
            return self

    def ask_one(self, request: Request) -> Completion:
        """Generate for a single request."""
        return self.ask([request])[0]


class Refused(Exception):
    """Requests to which the decoder gave no answer, or none that is a completion."""

    def __init__(self, problem: str, requests: Sequence[Request]) -> None:
        super().__init__(problem)
        self.requests = requests


def only_without_speculation(
    subject: Subject, name: str, error: Refused, kind: FaultClass
) -> Verdict:
    """FAIL where plain decoding answers a request that speculation does not; else raise again."""
    if len(error.requests) > 1 or "plain" not in subject.decoder.capabilities:
        raise error
    plain = msgspec.structs.replace(error.requests[0], speculate=False)
    try:
        answer = subject.ask_one(plain)
    except Refused:
        raise error from None
    return Verdict(
        check=name,
        status=Status.FAIL,
        message=f"{error}; without speculation it answers",
        fault_class=kind,
        evidence={"plain_tokens": answer.tokens},
        repro=repro(subject, error.requests),
    )


class Malformed(Refused):
    """Requests whose answer is not in the contract's form."""

    def __init__(
        self,
        problem: str,
        requests: Sequence[Request],
        kind: FaultClass = FaultClass.CONTRACT,
    ) -> None:
        super().__init__(problem, requests)
        self.kind = kind


def _finite(pieces: Iterator[list[int]], request: Request) -> Iterator[list[int]]:
    """The same, unless there is no end to it: far more tokens, or pieces, than were asked for."""
    tokens = 0
    for number, piece in enumerate(pieces, 1):
        tokens += len(piece) if isinstance(piece, list) else 1
        if max(tokens, number) > ENDLESS * (request.max_new_tokens + 1):
            raise RuntimeError(
                f"{number} pieces with {tokens} tokens, {request.max_new_tokens} were asked for, "
                "and there is no end"
            )
        yield piece


Check = Callable[Concatenate[Subject, Parameters], Verdict]


NAMED: dict[str, Callable[..., Verdict]] = {}
"""Every check that was imported, by name."""


def check(name: str, *needs: str) -> Callable[[Check[Parameters]], Check[Parameters]]:
    """Make a function a check: it has a name, needs capabilities, and outlives the decoder.

    A missing capability is UNSUPPORTED, and so is whatever else raises ``Unsupported``, and missing
    weights; a decoder that raises, or answers in another form than the contract's, is an ERROR. A
    failure that shows in many outputs together, and so comes without a reproduction, is reproduced
    by the check itself.
    """

    def decorate(function: Check[Parameters]) -> Check[Parameters]:
        @functools.wraps(function)
        def run(
            subject: Subject, /, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> Verdict:
            try:
                subject.require(*needs)
                verdict = function(subject, *args, **kwargs)
            except (Unsupported, NoWeightsError) as error:
                return Verdict(check=name, status=Status.UNSUPPORTED, message=str(error))
            except Refused as error:
                return Verdict(
                    check=name,
                    status=Status.ERROR,
                    message=str(error),
                    fault_class=error.kind if isinstance(error, Malformed) else None,
                    repro=repro(subject, error.requests[:MOST_IN_REPRO]),
                )
            if verdict.status is Status.ERROR and verdict.fault_class is None:
                # An answer came, and the oracle does not describe what gave it.
                verdict = msgspec.structs.replace(verdict, fault_class=FaultClass.CONTRACT)
            if verdict.status in (Status.FAIL, Status.ERROR) and not verdict.repro:
                again = rerun(subject, run, *args, **kwargs)
                verdict = msgspec.structs.replace(verdict, repro=again)
            return verdict

        NAMED[name] = run
        return run

    return decorate
