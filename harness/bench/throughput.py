"""``python -m harness.bench.throughput``: tokens per second of batched sampling on a tiny pair.

What chi-square checks cost. Every output is verified: the support check along all of it, under
the target's own law.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from tabulate import tabulate

from harness import oracle
from harness.adapters import load_decoder
from harness.checks.prompts import random_prompt
from harness.command_line import Parser
from harness.contract import Request, Sampling
from harness.models import load_pair

VERIFIED = 200  # outputs that are scored, of those that were generated


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the reference decoders; speculative and plain arms take turns."""
    parser = Parser("python -m harness.bench.throughput", __doc__)
    parser.add_argument("--pair", default="tiny")
    parser.add_argument("--decoder", action="append", help="repeatable (default: the reference's)")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    pair = load_pair(given.pair)
    seconds: dict[tuple[str, bool], list[float]] = {}
    tokens: dict[tuple[str, bool], int] = {}
    for _ in range(given.repeats):
        for name in given.decoder or ["reference", "reference-ngram"]:
            decoder = load_decoder(name, pair)
            for speculate in (True, False):
                requests = [
                    Request(
                        prompt=random_prompt(pair, 4, index % 50),
                        max_new_tokens=given.max_new_tokens,
                        sampling=Sampling(temperature=1.0),
                        seed=index,
                        speculate=speculate,
                        draft_tokens=given.draft_tokens,
                    )
                    for index in range(given.requests)
                ]
                started = time.perf_counter()
                completions = decoder.generate(requests)
                seconds.setdefault((name, speculate), []).append(time.perf_counter() - started)
                tokens[name, speculate] = sum(len(c.tokens) for c in completions)
                for request, completion in list(zip(requests, completions, strict=True))[:VERIFIED]:
                    _, laws = oracle.laws_along(
                        pair.target, request, completion.tokens, pair.vocab_size
                    )
                    drawn = laws[torch.arange(len(laws)), torch.tensor(completion.tokens)]
                    assert (drawn > 0).all(), "a token of probability zero was emitted"
    rows = [
        (name, "speculative" if speculate else "plain", tokens[name, speculate] / min(times))
        for (name, speculate), times in seconds.items()
    ]
    print(f"pair {pair.name}, {given.requests} requests of {given.max_new_tokens} tokens, ", end="")
    print(f"K = {given.draft_tokens}, {torch.get_num_threads()} threads, best of {given.repeats}")
    print(tabulate(rows, ["decoder", "arm", "tokens/s"], floatfmt=",.0f"))


if __name__ == "__main__":
    main()
