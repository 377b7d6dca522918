"""The options of ``python -m harness.report``, as argparse takes them. Imports no model."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.bench.profiles import DRAFT_TOKENS, PROFILES
from harness.bench.regression import MARGIN
from harness.bench.tasks import DRAFTS, KNOWN, TASKS
from harness.command_line import Parser
from harness.isolation import LIMITS
from harness.pair_files import DTYPES

DECODERS = ("reference", "reference-ngram", "transformers-assisted", "transformers-lookup")
PAIR = "smollm2-135m"
FORMATS = ("terminal", "markdown", "html", "json", "csv", "latex", "svg", "github")
MEASURED = FORMATS[:2]  # without --format
OUT = Path("reports") / "latest"
THIRD_PARTY = Path("reports") / "third_party"
SEED = 20261129

DESCRIPTION = """\
Measure what speculative decoding buys, and whether it is lossless, on the same outputs.

Every prompt is decoded twice by every decoder, plainly and speculatively, one right after the
other. The rows go to OUT/record.jsonl as they come; Ctrl-C keeps them and reports on them.
"""

EPILOG = """\
With --conformance nothing is measured: the records of the suites become one table. With --claims
neither: what is said of speculative decoding is judged from the records, of benchmarks and suites.
With --compare the run is put beside an earlier one of the same pair, K and temperature.

exit status:
  0  every decoder measured is lossless on the outputs that were timed; with --conformance: passed
     some suite, and nothing failed that was not expected to; with --claims: one could be decided
  1  some decoder is not (FAIL); with --compare: or slower than it was, by more than --regression
  2  bad usage or input; one line on stderr says what to do
  3  nothing wrong was found, but losslessness was not shown: an error, too few sampled tokens, a
     decoder without the needed capabilities, or a run that was interrupted; a record that cannot be
     read; with --claims: none could be decided

examples:
  python -m harness.report
  python -m harness.report --decoder my_package.adapter:build --decoder transformers-assisted
  python -m harness.report --tasks summarisation,repetitive,random
  python -m harness.report --profile full --out full --resume
  python -m harness.report --prompts-file question.jsonl --tasks writing,coding
  python -m harness.report --from reports/latest/record.jsonl --format markdown
  python -m harness.report --from reports/latest/record.jsonl --format html --out reports/latest
  python -m harness.report --advise --from reports/latest/record.jsonl
  python -m harness.report --conformance --format html,markdown --out reports/third_party
  python -m harness.report --claims reports/latest/record.jsonl reports/third_party/*.jsonl
  python -m harness.report --compare yesterday.jsonl --from today.jsonl --format terminal,github
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser("python -m harness.report", DESCRIPTION, epilog=EPILOG)
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "--decoder",
        action="append",
        metavar="NAME",
        help="a known decoder (`python -m harness` lists them) or package.module:factory; "
        f"repeatable (default: {', '.join(DECODERS)})",
    )
    what.add_argument(
        "--decoder-option",
        action="append",
        metavar="NAME=VALUE",
        help="passed to the factory of every decoder; repeatable",
    )
    what.add_argument(
        "--isolate",
        action="store_true",
        help="run every decoder in a child process: it can neither hang nor end the run",
    )
    for limit in LIMITS:
        what.add_argument(
            f"--{limit.option}",
            type=float,
            metavar=limit.metavar,
            help=f"with --isolate: {limit.meaning} (default: {limit.default:g})",
        )
    what.add_argument(
        "--pair", default=PAIR, metavar="NAME", help="model pair (default: %(default)s)"
    )
    what.add_argument("--target", metavar="PATH_OR_ID", help="your own target, with --draft")
    what.add_argument("--draft", metavar="PATH_OR_ID", help="its draft model")
    what.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the Python that a model's directory brings",
    )
    what.add_argument(
        "--tasks",
        metavar="LIST",
        help=f"task types, separated by commas: {', '.join(KNOWN)} (default: {','.join(TASKS)})",
    )
    what.add_argument(
        "--prompts-file",
        type=Path,
        action="append",
        metavar="FILE",
        help="your own prompts instead of the built-in tasks: Spec-Bench's question.jsonl, or JSON "
        "lines with prompt or messages, and task or not (--tasks: of the file's, default all); "
        "repeatable",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--profile",
        choices=PROFILES,
        default="quick",
        help="; ".join(f"{name}: {profile}" for name, profile in PROFILES.items()),
    )
    how.add_argument(
        "--prompts", type=int, metavar="N", help="prompts a task, instead of the profile's"
    )
    how.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="of every output, instead of the profile's"
    )
    how.add_argument(
        "--draft-tokens",
        type=int,
        default=DRAFT_TOKENS,
        metavar="K",
        help="tokens drafted a round (default: %(default)s)",
    )
    how.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="0 is greedy (default); above 0, losslessness is judged by the law of every token",
    )
    how.add_argument(
        "--batch-size",
        type=int,
        default=1,
        metavar="B",
        help="requests decoded at once, by both arms (default: %(default)s)",
    )
    how.add_argument(
        "--prompt-tokens",
        type=int,
        metavar="N",
        help="of every prompt: too long ones lose their beginning, too short ones get other "
        "prompts of their task in front",
    )
    how.add_argument(
        "--draft-choice",
        choices=DRAFTS,
        default=DRAFTS[0],
        help="mismatched: the pair's draft with its weights shuffled; identical: the target itself "
        "(default: the pair's own)",
    )
    how.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    how.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="of both models; int8: of their linear layers (default: %(default)s)",
    )
    how.add_argument(
        "--seed",
        type=_seed,
        default=SEED,
        help="of the order of measurement, and of sampling (default: %(default)s)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="DIR", help=f"for record.jsonl and the reports (default: {OUT})"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on with the interrupted record in DIR, given the options that it was begun with",
    )
    output.add_argument(
        "--from",
        dest="records",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="render these records, measure nothing",
    )
    output.add_argument(
        "--advise",
        action="store_true",
        help="say first, by task, whether to speculate and with which K",
    )
    output.add_argument(
        "--conformance",
        type=Path,
        nargs="*",
        metavar="FILE",
        help="render these records of the suites (--results) as one table "
        f"(default: {THIRD_PARTY}/*.jsonl)",
    )
    output.add_argument(
        "--claims",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="judge what is said of speculative decoding from these records, of benchmarks and of "
        "suites",
    )
    output.add_argument(
        "--compare",
        type=Path,
        metavar="OLD",
        help="put the run, or the record of --from, beside this earlier record",
    )
    output.add_argument(
        "--regression",
        type=float,
        metavar="SHARE",
        help="of the speedup that may be lost before --compare calls it a regression: about what "
        f"two runs of the same code differ by on one machine (default: {MARGIN:g})",
    )
    output.add_argument(
        "--format",
        metavar="LIST",
        help="terminal (printed); markdown, html (one page with figures), json, csv (a line a "
        "decoder and task), latex (tables of booktabs) and svg (speedup by task, drawn), which are "
        "written to DIR/report.*, or conformance.* or claims.*, or speedup.svg, and printed where "
        "nothing was measured and there is no --out; github (the summary of a step of GitHub "
        "Actions, and marks in its log); separated by commas (default: terminal,markdown; where "
        "nothing is measured: terminal)",
    )
    output.add_argument(
        "--verbose",
        action="store_true",
        help="print all that the other formats have: where the time goes, acceptance by position, "
        "predictions, what the figures mean and what the claims were judged by",
    )
    return parser


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("a seed is 0 or above")
    return value
