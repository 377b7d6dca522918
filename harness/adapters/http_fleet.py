"""Many servers of one model as one: who gets a request, and which request may be sent again.

A request that the server has not begun (nobody there, 429, 503) may go to another one. One that was
begun and brought no answer (a timeout, a broken connection, 500, 502, 504) is sent again only where
its answer is settled before it is sent: greedy, or sampled with a seed that the server takes. An
unseeded answer is drawn anew. To drop one would do no harm if it were dropped whatever it says; but
one that came too late is a long one more often than not, and one that broke a server is not just
any either. What is kept would follow the law of the answers that come in time, not the decoder's.
So that request is an error.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from harness.adapters.http_apis import Api
from harness.adapters.http_client import ServerError, Unanswered, Unreachable
from harness.contract import Completion, Request

RESENT = 2  # times at the most, where there are several servers
COMMA = re.compile(r"\s*,\s*(?=https?://)")  # between URLs: within one it may stand as well


class Fleet:
    """Servers of one model.

    Parameters
    ----------
    apis : sequence of Api
        At least one.
    together : int
        Requests that each of them gets at a time; 0: as many as its API says.
    resent : int
        How often a request that was begun, and may be sent again, is; -1: ``RESENT`` times where
        there are several servers. Of a single one a crash is a finding, not bad weather.
    left_out : dict of str to str
        URLs at which there was no server, and what was found there.
    """

    def __init__(
        self, apis: Sequence[Api], together: int, resent: int, left_out: dict[str, str]
    ) -> None:
        self.apis = tuple(apis)
        self.left_out = dict(left_out)
        self.seeds = "seed" in self.capabilities
        self._resent = resent if resent >= 0 else RESENT * (len(apis) + len(left_out) > 1)
        self._limits = {api: together or api.together for api in self.apis}
        self._busy: Counter[Api] = Counter()
        self._changed = threading.Condition()

    @property
    def capabilities(self) -> frozenset[str]:
        """What all of them can."""
        return frozenset.intersection(*(api.capabilities for api in self.apis))

    @property
    def together(self) -> int:
        """Requests that one of them decodes at a time."""
        return max(self._limits.values())

    @property
    def at_once(self) -> int:
        """Requests that all of them decode at a time."""
        return sum(self._limits.values())

    @property
    def retries(self) -> int:
        """Requests that were sent again so far."""
        return sum(api.server.retries for api in self.apis)

    @property
    def versions(self) -> dict[str, str]:
        """As the servers say, and which of them are left out."""
        found: dict[str, list[str]] = {}
        for api in self.apis:
            for name, version in api.versions.items():
                found.setdefault(name, []).append(version)
        versions = {name: " and ".join(dict.fromkeys(said)) for name, said in found.items()}
        # Those that were there when the fleet was built, and those that were not.
        urls = {api.server.url for api in self.apis} | self.left_out.keys()
        if len(urls) > 1:
            up = f"{len(urls) - len(self.left_out)} of {len(urls)}"
            out = (f"left out: {why}" for why in self.left_out.values())
            versions["endpoints"] = "; ".join([up, *out])
        return versions

    def generate(self, request: Request) -> Completion:
        """Let one of the servers decode a request, and another one if that is gone."""
        tried: list[Api] = []
        begun = 0
        while True:
            with self._slot(tried) as api:
                try:
                    completion = self._checked(api, api.generate(request))
                    self._take_back(api)
                    return completion
                except Unanswered as error:
                    problem = error
            tried.append(api)
            begun += problem.begun
            self._give_up(problem, api, request, tried, begun)
            api.server.count_retry()
            if problem.begun:
                time.sleep(api.server.pause(begun - 1))

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Let one of them decode a request in pieces, which cannot be taken back.

        It counts against no limit: who reads a stream may ask for something else meanwhile.
        """
        tried: list[Api] = []
        while True:
            with self._changed:
                api = self._least_busy(tried)
            try:
                yield from api.stream(request)
                return
            except Unanswered as error:
                if error.begun:
                    raise
                tried.append(api)
                self._give_up(error, api, request, tried, begun=0)
                api.server.count_retry()

    def close(self) -> None:
        """Let go of the connections."""
        for api in self.apis:
            api.server.close()

    def may_be_resent(self, request: Request) -> bool:
        """Whether the answer is settled, so that it makes no difference which one is kept."""
        return request.sampling.greedy or (request.seed is not None and self.seeds)

    def _give_up(
        self, problem: Unanswered, api: Api, request: Request, tried: Sequence[Api], begun: int
    ) -> None:
        """Raise the problem, unless the request may be sent once more."""
        if isinstance(problem, Unreachable):
            self._leave_out(api, problem)
        if not problem.begun:
            if set(tried) >= set(self._candidates()):
                raise problem
            return
        if not self._resent:
            raise problem
        if not self.may_be_resent(request):
            raise ServerError(
                f"{problem}; it is not sent again: sampled without a seed, the answers that come "
                "would follow another law than all answers"
            ) from problem
        if begun > self._resent:
            raise ServerError(f"{problem} (sent {begun} times)") from problem

    def _checked(self, api: Api, completion: Completion) -> Completion:
        """Of many servers it is not told elsewhere whose ids are wrong."""
        vocab = api.pair.vocab_size
        outside = [token for token in completion.tokens if not 0 <= token < vocab]
        if outside and len(self.apis) > 1:
            raise ServerError(
                f"{api.server.url}: token {outside[0]} is outside the vocabulary 0..{vocab - 1}"
            )
        return completion

    @contextmanager
    def _slot(self, tried: Collection[Api]) -> Iterator[Api]:
        """The server that is to decode, one of whose places is taken meanwhile."""
        with self._changed:
            while self._busy[api := self._least_busy(tried)] >= self._limits[api]:
                self._changed.wait()
            self._busy[api] += 1
        try:
            yield api
        finally:
            with self._changed:
                self._busy[api] -= 1
                self._changed.notify_all()

    def _candidates(self) -> Sequence[Api]:
        """Those that are up; all of them where none is, for one may be back."""
        return [api for api in self.apis if api.server.url not in self.left_out] or self.apis

    def _least_busy(self, tried: Collection[Api]) -> Api:
        """Rather one that was not tried."""
        found = self._candidates()
        fresh = [api for api in found if api not in tried]
        return min(fresh or found, key=lambda api: self._busy[api] / self._limits[api])

    def _leave_out(self, api: Api, problem: Unanswered) -> None:
        """Send it nothing more, as long as there are others."""
        with self._changed:
            if len(self.apis) > 1 and api.server.url not in self.left_out:
                self.left_out[api.server.url] = str(problem)
                say_left_out(str(problem))
                self._changed.notify_all()

    def _take_back(self, api: Api) -> None:
        """It answers again: it was asked once none was up."""
        with self._changed:
            self.left_out.pop(api.server.url, None)


def say_left_out(problem: str) -> None:
    """A word to whoever runs this."""
    print(f"note: left out: {problem}", file=sys.stderr)


def fleet(urls: str, connect: Callable[[str], Api], together: int = 0, resent: int = -1) -> Fleet:
    """The servers behind a list of URLs; those that are not there are left out if others are.

    Parameters
    ----------
    urls : str
        Separated by commas.
    connect : callable
        The server behind a URL, which was found to have the right model.

    Raises
    ------
    ServerError
        If no server is there.
    ValueError
        If a URL is named twice, or one of the servers has another model: it names that one.
    """
    named = COMMA.split(urls.strip())
    if twice := [url for url, times in Counter(named).items() if times > 1]:
        raise ValueError(f"{twice[0]} is named twice: name each server once")
    apis: list[Api] = []
    problems: dict[str, Unanswered] = {}
    for url in named:
        try:
            apis.append(connect(url))
        except Unanswered as error:
            problems[url] = error
    if not apis:
        raise next(iter(problems.values()))
    for problem in problems.values():
        say_left_out(str(problem))
    return Fleet(apis, together, resent, {url: str(error) for url, error in problems.items()})
