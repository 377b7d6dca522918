"""``python -m reference_impl.bench``: all drafting families, paired, beside transformers' own.

One run of ``harness.report`` a pair, and behind it a table with a row a family, as Markdown. On
``smollm2-135m`` the text is real; ``wide-llama`` has the shape of a larger model, and acceptance
made to order (``harness.timing_pairs``). Other options are those of ``python -m harness.report``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness import models
from harness.command_line import BAD_INPUT, Parser, refuse
from harness.record import RecordError, read
from harness.report import __main__ as report
from harness.report import families, formats

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
TRAINED = ("medusa", "eagle")  # measured where a pair has heads of that kind
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
    add("--table", type=Path, metavar="RECORD", help="only print the table of this record")
    given, rest = parser.parse_known_args(arguments)
    if given.table:
        return show(given.table)
    worst = 0
    for pair in given.pair or PAIRS:
        options = ["--pair", pair, "--out", str(given.out / pair), *rest]
        for decoder in (given.decoder or decoders(pair)) + given.peer:
            options += ["--decoder", decoder]
        status = report.main(options)
        record = given.out / pair / "record.jsonl"
        if status != BAD_INPUT and record.exists():
            status = max(status, show(record))
        worst = max(worst, status)
        if status == BAD_INPUT:
            break
    return worst


def show(path: Path) -> int:
    """Print the table of a record as Markdown; returns the exit status."""
    try:
        record = read(path)
    except RecordError as error:
        return refuse(error)
    if not record.generations:
        return refuse(f"{path} has no outputs that were timed: give a record of harness.report")
    print(formats.markdown_table(families.table(record)))
    return 0


def decoders(pair: str) -> list[str]:
    """What is measured on a pair: untrained heads would show nothing."""
    missing = [kind for kind in TRAINED if kind not in models.heads(pair)]
    return [*(name for name in FAMILIES if not any(kind in name for kind in missing)), *OTHERS]


if __name__ == "__main__":
    sys.exit(main())
