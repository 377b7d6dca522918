"""What ``python -m harness.report`` was asked for, checked. Imports no model."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.bench.profiles import PROFILES, Profile
from harness.bench.regression import MARGIN
from harness.bench.tasks import KNOWN, TASKS
from harness.command_line import BadInput, require_positive
from harness.isolation import limits
from harness.report.arguments import DECODERS, FORMATS, MEASURED, OUT, THIRD_PARTY, parser


@dataclass(frozen=True)
class Options:
    """What to measure and where to put it; ``records`` instead, to render only.

    With ``conformance`` they are rendered together. With ``prompts_files``, no ``tasks`` means all
    that the files have.
    """

    decoders: tuple[str, ...]
    decoder_options: dict[str, str]
    isolate: bool
    trust_remote_code: bool
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
    verbose: bool = False

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
    known = parser()
    given = known.parse_args(arguments)
    renders_too = {"records", "conformance", "claims", "compare", "regression"}
    renders_too |= {"advise", "out", "format", "verbose"}
    measuring = [
        n for n, v in vars(given).items() if v != known.get_default(n) and n not in renders_too
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
    require_positive(given, "prompts", "max_new_tokens", "batch_size", "prompt_tokens")
    if given.resume and given.batch_size > 1:
        raise BadInput("--resume goes on with single requests: leave out --batch-size or --resume")
    if not 0 <= given.temperature < math.inf:
        raise BadInput(f"--temperature is {given.temperature}: it must be 0 (greedy) or above")
    formats = _choices("--format", given.format, FORMATS) if given.format else ()
    if "svg" in formats and rendering in ("--claims", "--conformance"):
        raise BadInput(f"--format svg draws speedups, which {rendering} has none of: use --from")
    records = given.records or given.conformance or given.claims or ()
    if given.conformance is not None and not records:
        records = sorted(THIRD_PARTY.glob("*.jsonl"))
        if not records:
            raise BadInput(f"no records in {THIRD_PARTY}: name them, or run ci/third_party first")
    return Options(
        decoders=tuple(dict.fromkeys(given.decoder or DECODERS)),
        decoder_options=_key_values(given.decoder_option or []) | _limits(given),
        isolate=given.isolate,
        trust_remote_code=given.trust_remote_code,
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
        verbose=given.verbose,
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


def _limits(given: argparse.Namespace) -> dict[str, str]:
    try:
        return limits(vars(given), given.isolate)
    except ValueError as error:
        raise BadInput(str(error)) from None


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
