"""Prints a session on stdio: ``>`` what the harness writes, ``<`` what a decoder answers.

``python examples/stdio_node/session.py [COMMAND]``; without a command, of the decoder in Node
beside it. Paths of models are shortened.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
import tempfile
from pathlib import Path

from harness.adapters import load_decoder
from harness.adapters.stdio import StdioDecoder
from harness.contract import Request, Sampling
from harness.models import load_pair

DECODER = f"node {shlex.quote(str(Path(__file__).with_name('decoder.mjs')))}"


def session(command: str) -> list[str]:
    """The lines of a short session with the decoder that a command starts."""
    pair = load_pair("micro")
    greedy = Request(prompt=(1, 2, 3), max_new_tokens=4, eos=(0,))
    hot = Sampling(temperature=1.0, top_k=5, logit_bias={7: float("-inf")})
    sampled = Request(prompt=(1, 2), max_new_tokens=6, sampling=hot, seed=7)
    with tempfile.TemporaryDirectory() as scratch:
        there, back = Path(scratch) / "there", Path(scratch) / "back"
        line = f"tee {there} | {command} | tee {back}"
        decoder = load_decoder(f"cmd: bash -c {shlex.quote(line)}", pair)
        assert isinstance(decoder, StdioDecoder)
        decoder.generate([greedy])
        decoder.generate([sampled])
        with contextlib.suppress(ValueError):
            decoder.generate([Request(prompt=(8,), max_new_tokens=1)])  # there is no id 8
        stream = decoder.stream(sampled)
        next(stream)
        next(stream)
        stream.close()
        decoder.close()
        asked, answers = (path.read_text().splitlines() for path in (there, back))
    root = str(pair.directory("target").parent)
    lines = itertools.zip_longest((f"> {a}" for a in asked), (f"< {b}" for b in answers))
    return [line.replace(root, "/models") for both in lines for line in both if line]


if __name__ == "__main__":
    print(*session(shlex.join(sys.argv[1:]) or DECODER), sep="\n")
