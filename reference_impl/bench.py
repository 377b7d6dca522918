"""``python -m reference_impl.bench``: all drafting families, paired, beside transformers' own.

One run of ``harness.report`` a pair. On ``smollm2-135m`` the text is real; ``wide-llama`` has the
shape of a larger model, and acceptance made to order (``harness.timing_pairs``). Other options are
those of ``python -m harness.report``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.command_line import Parser
from harness.report import __main__ as report

PAIRS = ("smollm2-135m", "wide-llama")
FAMILIES = (
    "reference",
    "reference-ngram",
    "reference-suffix",
    "reference-cascade",
    "reference-early-exit",
    "reference-medusa",
    "reference-medusa-tree",
    "reference-eagle",
    "reference-eagle-cascade",
    "reference-eagle-tree",
    "reference-tree",
)
TRAINED = ("medusa", "eagle")  # on pairs without heads of their own they guess at random
OTHERS = ("transformers-assisted", "transformers-lookup")
OUT = Path("reports") / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every pair; returns the worst exit status."""
    parser = Parser("python -m reference_impl.bench", __doc__)
    add = parser.add_argument
    add("--pair", action="append", help=f"repeatable (default: {', '.join(PAIRS)})")
    add("--decoder", action="append", help="repeatable (default: every family, transformers)")
    add("--peer", action="append", default=[], help="one decoder more; repeatable")
    add("--out", type=Path, default=OUT, help="a folder for each pair goes here (%(default)s)")
    given, rest = parser.parse_known_args(arguments)
    worst = 0
    for pair in given.pair or PAIRS:
        options = ["--pair", pair, "--out", str(given.out / pair), *rest]
        for decoder in (given.decoder or decoders(pair)) + given.peer:
            options += ["--decoder", decoder]
        worst = max(worst, report.main(options))
    return worst


def decoders(pair: str) -> list[str]:
    """What is measured on a pair: untrained heads would show nothing."""
    trained = pair == PAIRS[0]
    families = [name for name in FAMILIES if trained or not any(kind in name for kind in TRAINED)]
    return [*families, *OTHERS]


if __name__ == "__main__":
    sys.exit(main())
