"""The command line of ``python -m harness.report``. Imports no model."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.bench.profiles import DRAFT_TOKENS, PROFILES, Profile
from harness.bench.regression import MARGIN
from harness.bench.tasks import DRAFTS, KNOWN, TASKS
from harness.command_line import BadInput, Parser
from harness.pair_files import DTYPES

DECODERS = ("reference", "reference-ngram", "transformers-assisted", "transformers-lookup")
PAIR = "smollm2-135m"
FORMATS = ("terminal", "markdown", "html", "json", "csv", "latex", "github")
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


@dataclass(frozen=True)
class Options:
    """What to measure and where to put it; ``records`` instead, to render only.

    With ``conformance`` they are rendered together. With ``prompts_files``, no ``tasks`` means all
    that the files have.
    """

    decoders: tuple[str, ...]
    decoder_options: dict[str, str]
    pair: str
    target: str | None
    draft: str | None
    tasks: tuple[str, ...]
    prompts_files: tuple[Path, ...]
    profile: str
    prompts: int | None
    max_new_tokens: int | None
    draft_tokens: int
    temperature: float
    batch_size: int
    prompt_tokens: int | None
    draft_choice: str
    device: str
    dtype: str
    seed: int
    resume: bool
    out: Path | None
    records: tuple[Path, ...]
    conformance: bool
    advise: bool
    claims: bool
    compare: Path | None
    margin: float
    formats: tuple[str, ...]

    @property
    def size(self) -> Profile:
        """How much is measured: the profile's, but for what was asked for otherwise."""
        given = {"prompts": self.prompts, "max_new_tokens": self.max_new_tokens}
        asked = {name: value for name, value in given.items() if value is not None}
        return replace(PROFILES[self.profile], **asked)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line.

    Raises
    ------
    BadInput
        If the options do not make sense.
    SystemExit
        If argparse finds them malformed, or after ``--help``.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    renders_too = {"records", "conformance", "claims", "compare", "regression"}
    renders_too |= {"advise", "out", "format"}
    measuring = [
        n for n, v in vars(given).items() if v != parser.get_default(n) and n not in renders_too
    ]
    asked = {
        "--from": given.records,
        "--conformance": given.conformance,
        "--claims": given.claims,
    }
    named = [option for option, files in asked.items() if files is not None]
    if len(named) > 1:
        raise BadInput(f"give the records to {named[0]} or to {named[1]}, not to both")
    rendering = "".join(named)
    only_renders = bool(rendering)
    if given.advise and rendering not in ("", "--from"):
        raise BadInput("--advise takes records of measurements: give them to --from")
    _check_comparison(given, rendering)
    if only_renders and measuring:
        option = "--" + measuring[0].replace("_", "-")
        raise BadInput(f"{option} has no effect with {rendering}, which only renders: leave it out")
    if given.draft_tokens < 1:
        raise BadInput(f"--draft-tokens is {given.draft_tokens}: at least 1 token a round")
    for name in ("prompts", "max_new_tokens", "batch_size", "prompt_tokens"):
        if (value := getattr(given, name)) is not None and value < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {value}: ask for at least 1")
    if given.resume and given.batch_size > 1:
        raise BadInput("--resume goes on with single requests: leave out --batch-size or --resume")
    if not 0 <= given.temperature < math.inf:
        raise BadInput(f"--temperature is {given.temperature}: it must be 0 (greedy) or above")
    formats = _choices("--format", given.format, FORMATS) if given.format else ()
    records = given.records or given.conformance or given.claims or ()
    if given.conformance is not None and not records:
        records = sorted(THIRD_PARTY.glob("*.jsonl"))
        if not records:
            raise BadInput(f"no records in {THIRD_PARTY}: name them, or run ci/third_party first")
    return Options(
        decoders=tuple(dict.fromkeys(given.decoder or DECODERS)),
        decoder_options=_key_values(given.decoder_option or []),
        pair=given.pair,
        target=given.target,
        draft=given.draft,
        tasks=_tasks(given.tasks, of_files=bool(given.prompts_file)),
        prompts_files=tuple(dict.fromkeys(given.prompts_file or ())),
        profile=given.profile,
        prompts=given.prompts,
        max_new_tokens=given.max_new_tokens,
        draft_tokens=given.draft_tokens,
        temperature=given.temperature,
        batch_size=given.batch_size,
        prompt_tokens=given.prompt_tokens,
        draft_choice=given.draft_choice,
        device=given.device,
        dtype=given.dtype,
        seed=given.seed,
        resume=given.resume,
        out=given.out or (None if only_renders else OUT),
        records=tuple(records),
        conformance=given.conformance is not None,
        advise=given.advise,
        claims=given.claims is not None,
        compare=given.compare,
        margin=MARGIN if given.regression is None else given.regression,
        formats=formats or (("terminal",) if only_renders else MEASURED),
    )


def _check_comparison(given: argparse.Namespace, rendering: str) -> None:
    if given.regression is not None and not 0 <= given.regression < 1:
        raise BadInput(f"--regression is {given.regression}: a share of the speedup, 0 or above")
    if given.regression is not None and given.compare is None:
        raise BadInput("--regression has no effect without --compare: name the earlier record")
    if given.compare is None:
        return
    if rendering not in ("", "--from"):
        raise BadInput(f"--compare has no effect with {rendering}: leave it out, or use --from")
    if given.records and len(given.records) > 1:
        raise BadInput("--compare puts one run beside one: give --from a single record")


def _tasks(text: str | None, of_files: bool) -> tuple[str, ...]:
    """Which ones files have is not known before they are read."""
    if text is None:
        return () if of_files else TASKS
    if not of_files:
        return _choices("--tasks", text, KNOWN)
    if not (names := _names(text)):
        raise BadInput("--tasks is empty: name tasks of the file, or leave it out")
    return names


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _choices(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = _names(text)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"does not know {unknown[0]!r}" if unknown else "is empty"
        raise BadInput(f"{option} {what}: known are {', '.join(known)}")
    return names


def _key_values(texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise BadInput(f"--decoder-option {text!r} is not of the form name=value")
    return dict(text.split("=", 1) for text in texts)


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("a seed is 0 or above")
    return value


def _parser() -> argparse.ArgumentParser:
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
        "--pair", default=PAIR, metavar="NAME", help="model pair (default: %(default)s)"
    )
    what.add_argument("--target", metavar="PATH_OR_ID", help="your own target, with --draft")
    what.add_argument("--draft", metavar="PATH_OR_ID", help="its draft model")
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
        "decoder and task) and latex (tables of booktabs), which are written to DIR/report.*, or "
        "conformance.* or claims.*, and printed where nothing was measured and there is no --out; "
        "github (the summary of a step of GitHub Actions, and marks in its log); separated by "
        "commas (default: terminal,markdown; where nothing is measured: terminal)",
    )
    return parser
