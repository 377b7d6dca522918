"""The HTTP door: a decoder behind a URL, by the API of its server (docs/http.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.adapters.http_apis import Api, api_named
from harness.adapters.http_checks import check_target, refused
from harness.adapters.http_client import Server, ServerError, token_of
from harness.adapters.http_fleet import Fleet, fleet
from harness.contract import CAPABILITIES, Completion, Request
from harness.models import ModelPair

FIELD = "body."  # options that begin with it are fields of every request


class HttpDecoder:
    """Servers of one engine, and other ones for plain decoding if there are.

    Parameters
    ----------
    speculative, plain : Fleet
    capabilities : frozenset of str

    Attributes
    ----------
    capabilities : frozenset of str
    """

    def __init__(
        self, speculative: Fleet, plain: Fleet | None, capabilities: frozenset[str]
    ) -> None:
        self._speculative, self._plain = speculative, plain
        self.capabilities = capabilities
        for arm in self._arms:
            arm.seeds = "seed" in capabilities

    @property
    def versions(self) -> dict[str, str]:
        """As the servers say, and which of them are left out."""
        versions = self._speculative.versions
        if self._plain and (of_plain := self._plain.versions.get("endpoints")):
            versions["plain endpoints"] = of_plain
        return versions

    @property
    def retries(self) -> int:
        """Requests that were sent again so far."""
        return sum(arm.retries for arm in self._arms)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Let the server decode all requests, as many at a time as it may get."""
        with ThreadPoolExecutor(max(arm.at_once for arm in self._arms)) as pool:
            return list(pool.map(lambda request: self._arm(request).generate(request), requests))

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Let the server decode one request in pieces; closing cancels it."""
        return self._arm(request).stream(request)

    def close(self) -> None:
        """Let go of the connections; the servers are somebody else's."""
        for arm in self._arms:
            arm.close()

    @property
    def _arms(self) -> list[Fleet]:
        return [arm for arm in (self._speculative, self._plain) if arm]

    def _arm(self, request: Request) -> Fleet:
        if request.speculate:
            return self._speculative
        if self._plain is None:
            raise ValueError("plain decoding is a second server of the same engine: plain=URL")
        return self._plain


def endpoint(
    pair: ModelPair,
    url: str,
    api: str = "openai",
    plain: str = "",
    model: str = "",
    timeout: float = 120,
    concurrency: int = 0,
    retries: int = -1,
    without: str = "",
    also: str = "",
    token_from: str = "",
    **fields: bool | int | float | str,
) -> HttpDecoder:
    """A decoder behind a URL.

    Parameters
    ----------
    pair : ModelPair
        What the server has loaded: checks know the target's law from it.
    url : str
        ``{pair}`` in it stands for the name of the pair. Several, separated by commas, are servers
        of the same model, which share the requests.
    api : str
        ``APIS`` names them.
    plain : str
        URL, or URLs, of the same engine without speculation; without it ``plain`` is not declared.
    model : str
        How the server calls the model; needed where it serves several.
    timeout : float
        Seconds that a request may take, each time that it is sent.
    concurrency : int
        Requests at a time, of each server; 0: as many as the API says.
    retries : int
        How often a request that was begun and not answered is sent again, if its answer is
        settled (greedy, or seeded); -1: twice where there are several URLs.
    without, also : str
        Capabilities that this server has not, or has, beside what is known of the API: ``a,b``.
    token_from : str
        Environment variable that holds a bearer token.
    **fields
        ``body.NAME=VALUE``: a field of every request.
    """
    if unknown := [name for name in fields if not name.startswith(FIELD)]:
        raise ValueError(f"unknown option {unknown[0]!r}: a field of the request is body.NAME")
    added = {name.removeprefix(FIELD): value for name, value in fields.items()}
    kind, token = api_named(api), token_of(token_from)

    def connect(at: str) -> Api:
        server = Server(at.replace("{pair}", pair.name), timeout, token)
        api = kind(server, pair, model, added)
        check_target(api)
        api.capabilities = api.capabilities - refused(api)
        return api

    try:
        speculative = fleet(url, connect, concurrency, retries)
        other = fleet(plain, connect, concurrency, retries) if plain else None
    except ServerError as error:
        raise ValueError(str(error)) from None
    declared = set(speculative.capabilities)
    if other:  # what either of them refuses is not declared
        declared &= other.capabilities
    declared |= {"plain"} if other else set()
    declared |= {"batch"} if speculative.together > 1 else set()
    declared |= {"stream"} if kind.streams else set()
    declared = (declared | names(also)) - names(without)
    return HttpDecoder(speculative, other, frozenset(declared))


def names(text: str) -> set[str]:
    """Capabilities from ``a,b``; ValueError if there is no such one."""
    found = {name for name in text.split(",") if name}
    if unknown := found - set(CAPABILITIES):
        raise ValueError(f"unknown capability {min(unknown)!r}")
    return found
