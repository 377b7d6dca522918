"""node-llama-cpp, llama.cpp in Node, on the stdio door: ``node/llama_cpp.mjs`` is the child."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.adapters import NotInstalledError
from harness.adapters.engines import environment
from harness.adapters.stdio import StdioDecoder
from harness.models import ModelPair

ENVIRONMENT = "node-llama-cpp"
CHILD = Path(__file__).parent / "node" / "llama_cpp.mjs"
TIMEOUT = 300.0  # seconds


def predictor(
    pair: ModelPair,
    drafts: str = "model",
    seeds: str = "drawn",
    penalties: bool = False,
    rows: int = 1,
    spare: int = 64,
) -> StdioDecoder:
    """Its evaluation with a token predictor.

    Parameters
    ----------
    pair : ModelPair
    drafts : str
        ``model``, of the pair's draft, or ``lookup``, of the prompt.
    seeds : str
        Where a request has no seed: ``drawn`` at random, or ``engine`` for what it takes itself,
        which is the time in seconds.
    penalties : bool
        Declares penalties, which go by one list of tokens there: all of one kind, or none.
    rows : int
        Requests that are evaluated together. With more than 1 the rows of a batch get into each
        other now and then, without speculation too, and in no run the same.
    spare : int
        Tokens of its context beyond the pair's: it loses the beginning of the text where drafts
        reach the end.
    """
    for name, value, known in (
        ("drafts", drafts, ("model", "lookup")),
        ("seeds", seeds, ("drawn", "engine")),
    ):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: give {' or '.join(known)}")
    modules = environment(ENVIRONMENT) / "node_modules"
    node = shutil.which("node")
    if not (node and modules.exists()):
        raise NotInstalledError(
            f"{ENVIRONMENT} is not installed: ci/third_party --install {ENVIRONMENT}"
        )
    return StdioDecoder(
        [node, str(CHILD), str(modules)],
        pair.files(("gguf",)),
        {"drafts": drafts, "seeds": seeds, "penalties": penalties, "rows": rows, "spare": spare},
        TIMEOUT,
    )
