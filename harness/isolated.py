"""``python -m harness.isolated NAME``: the child in which ``--isolate`` runs a decoder.

It speaks the protocol of docs/stdio.md on its pipes, and loads the pair by itself. Before anything
of the decoder is imported it limits what it may ask for.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness import host
from harness.adapters import DecoderError, NotInstalledError, load_decoder
from harness.command_line import Parser
from harness.contract import Decoder
from harness.pair_files import PairFiles, UnsupportedPairError

GIB = 1 << 30
NOT_CARRIED = frozenset({"exact_law"})  # by the protocol, so that it is not declared


class Narrowed:
    """A decoder that declares what the door can carry, and is otherwise the one that it holds."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.capabilities = frozenset(decoder.capabilities) - NOT_CARRIED

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the lines of stdin until it ends."""
    parser = Parser("python -m harness.isolated", __doc__)
    parser.add_argument("decoder", metavar="NAME", help="what --decoder takes")
    parser.add_argument("--pair", required=True, metavar="JSON", help="arguments of load_pair")
    parser.add_argument("--memory-limit", type=float, required=True, metavar="GIB")
    given = parser.parse_args(arguments)
    limit(int(given.memory_limit * GIB))
    lines, answers = host.pipes()
    pair = msgspec.json.decode(given.pair, type=dict[str, Any])
    host.serve(functools.partial(build, given.decoder, pair), lines, answers)
    return 0


def limit(memory: int) -> None:
    """No process from here on gets more private memory than this.

    Of data (RLIMIT_DATA) and not of addresses: drivers reserve far more of those than they fill.
    """
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no such module
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def build(
    name: str, loaded_with: Mapping[str, Any], files: PairFiles, /, **options: Any
) -> Decoder:
    """The decoder on a pair that is loaded here."""
    from harness.models import load_pair

    pair = load_pair(**loaded_with)
    if pair.vocab_size != files.vocab_size:
        raise ValueError(
            f"the pair has {pair.vocab_size} ids here, and {files.vocab_size} outside: it cannot "
            "be loaded anew by what it was loaded with"
        )
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
    try:
        return Narrowed(load_decoder(name, pair, texts))
    except NotInstalledError as error:
        raise UnsupportedPairError(str(error)) from None
    except DecoderError as error:
        raise ValueError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
