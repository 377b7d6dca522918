"""The HTTP door: a decoder behind a URL, by the API of its server (docs/http.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.adapters.http_apis import Api, api_named
from harness.adapters.http_checks import check_target, refused
from harness.adapters.http_client import Server, ServerError, token_of
from harness.contract import CAPABILITIES, Completion, Request
from harness.models import ModelPair

FIELD = "body."  # options that begin with it are fields of every request


class HttpDecoder:
    """A server, and another one of the same engine for plain decoding if there is.

    Parameters
    ----------
    speculative, plain : Api
    concurrency : int
        Requests that are sent at a time.
    capabilities : frozenset of str

    Attributes
    ----------
    capabilities : frozenset of str
    versions : dict of str to str
        As the server says.
    """

    def __init__(
        self, speculative: Api, plain: Api | None, concurrency: int, capabilities: frozenset[str]
    ) -> None:
        self._speculative, self._plain = speculative, plain
        self._concurrency = concurrency
        self.capabilities = capabilities
        self.versions = speculative.versions

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Let the server decode all requests, as many at a time as it may get."""
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(lambda request: self._arm(request).generate(request), requests))

    def stream(self, request: Request) -> Iterator[list[int]]:
        """Let the server decode one request in pieces; closing cancels it."""
        return self._arm(request).stream(request)

    def close(self) -> None:
        """Let go of the connections; the servers are somebody else's."""
        for arm in (self._speculative, self._plain):
            if arm:
                arm.server.close()

    def _arm(self, request: Request) -> Api:
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
        ``{pair}`` in it stands for the name of the pair.
    api : str
        ``APIS`` names them.
    plain : str
        URL of the same engine without speculation; without it ``plain`` is not declared.
    model : str
        How the server calls the model; needed where it serves several.
    timeout : float
        Seconds that one request may take.
    concurrency : int
        Requests at a time; 0: as many as the API says.
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

    def arm(at: str) -> Api:
        server = Server(at.replace("{pair}", pair.name), timeout, token)
        return kind(server, pair, model, added)

    try:
        speculative, other = arm(url), arm(plain) if plain else None
        declared = set(speculative.capabilities)
        for found in filter(None, (speculative, other)):
            check_target(found)
            declared -= refused(found)
    except ServerError as error:
        raise ValueError(str(error)) from None
    together = concurrency or speculative.together
    declared |= {"plain"} if other else set()
    declared |= {"batch"} if together > 1 else set()
    declared |= {"stream"} if kind.streams else set()
    declared = (declared | _names(also)) - _names(without)
    return HttpDecoder(speculative, other, together, frozenset(declared))


def _names(text: str) -> set[str]:
    names = {name for name in text.split(",") if name}
    if unknown := names - set(CAPABILITIES):
        raise ValueError(f"unknown capability {min(unknown)!r}")
    return names
