"""``ci/third_party NAME...``: third parties' decoders through the suites, each in its environment.

Every decoder leaves a record, ``reports/third_party/NAME.jsonl``; ``python -m harness.report
--conformance`` is the table of them all.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.adapters import BUILT_IN
from harness.adapters.engines import ENGINES, environment
from harness.checks.budget import PROFILES
from harness.command_line import BadInput, Parser, refuse

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "harness" / "adapters" / "recipes"
RESULTS = Path("reports") / "third_party"  # relative: it goes into the record's command
XFAILS = Path("harness") / "adapters" / "xfails"
STAMP = "recipe.sha256"
# Third parties that need no environment of their own: they are in the harness's.
HERE = tuple(name for name in BUILT_IN if not name.startswith("reference"))
SHOWN = 15  # last lines of a log
SECONDS = 30  # of a statistical test: most engines decode one request at a time

EPILOG = """\
arguments after -- go to pytest: ci/third_party NAME -- -n 2 -k greedy
(a record of such a part goes to reports/third_party/parts/)

exit status:
  0  everything that ran ended as expected; known failures are in harness/adapters/xfails/
  1  some decoder did not
  2  bad usage; one line on stderr says what to do
  3  some environment could not be installed, and nothing else went wrong
"""


class InstallError(RuntimeError):
    """A recipe failed; the message says where its log is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        given, to_pytest = _parse(list(sys.argv[1:] if arguments is None else arguments))
        if given.list:
            print(listing())
            return 0
        if given.names and not (ROOT / "pyproject.toml").exists():
            raise BadInput("records are kept in a checkout: pytest --pyargs suites --decoder NAME")
        for name in given.install:
            _known(name, "environment", sorted({e.environment for e in ENGINES.values()}))
        for name in given.names:
            _known(name, "decoder", decoders())
    except BadInput as error:
        return refuse(error)
    worst = 0
    for name in given.install:
        worst = max(worst, _ready(name, given.again))
    statuses = [_decoder(name, given, to_pytest) for name in given.names]
    _summary([record_of(name, given.pair, is_part(to_pytest)) for name in given.names])
    return 1 if 1 in statuses else max([worst, *statuses])


def decoders() -> list[str]:
    """Third parties' decoders, by name."""
    return [*HERE, *ENGINES]


def listing() -> str:
    """Decoders, their environments, and whether these are installed."""
    rows = []
    for name in decoders():
        engine = ENGINES.get(name)
        if engine is None:
            rows.append((name, "the harness's own", "installed"))
        else:
            there = "installed" if installed(engine.environment) else "not installed"
            rows.append((name, engine.environment, there))
    width = max(len(name) for name, _, _ in rows)
    wide = max(len(where) for _, where, _ in rows)
    return "\n".join(f"{name:<{width}}  {where:<{wide}}  {there}" for name, where, there in rows)


def installed(name: str) -> bool:
    """Whether an environment is there, complete, and made by the recipe as it is now."""
    stamp = environment(name) / STAMP
    return stamp.exists() and stamp.read_text().strip() == _digest(name)


def install(name: str, again: bool = False) -> None:
    """Make an environment by its recipe, unless it is there.

    Raises
    ------
    InstallError
        If the recipe fails. What it left is taken away, and the log is kept.
    """
    if installed(name) and not again:
        return
    recipe, directory = RECIPES / name, environment(name)
    log = directory.with_name(f"{name}.log")
    print(f"installing {name} into {directory}", file=sys.stderr, flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(
            ["bash", recipe, directory],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_with_this_python(os.environ),
            check=False,
        )
    if done.returncode:
        shutil.rmtree(directory, ignore_errors=True)
        lines = log.read_text(errors="replace").splitlines()[-SHOWN:]
        print(*lines, sep="\n", file=sys.stderr)
        raise InstallError(f"the recipe {name} failed; all of its log: {log}")
    (directory / STAMP).write_text(_digest(name) + "\n")


def record_of(name: str, pair: str = "", part: bool = False) -> Path:
    """Where the record of a decoder goes; one of a part of the suites replaces no whole one."""
    directory = RESULTS / "parts" if part else RESULTS
    return directory / (f"{name}.{pair}.jsonl" if pair else f"{name}.jsonl")


def is_part(to_pytest: Sequence[str]) -> bool:
    """Whether pytest's arguments change what is run, and not only how."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("-n", "--dist", "-p", "--junitxml"):
        parser.add_argument(name, action="append")
    for name in ("--resume", "-q", "-v"):
        parser.add_argument(name, action="store_true")
    _, others = parser.parse_known_args(to_pytest)
    return bool(others)


def command(name: str, profile: str, pair: str = "", extra: Sequence[str] = ()) -> list[str]:
    """The arguments of Python that run the suites on a decoder."""
    words = ["-m", "pytest", "suites/", "--decoder", name, "--profile", profile]
    words += ["--seconds", str(SECONDS)]
    if pair:
        words += ["--pair", pair]
    xfails = XFAILS / f"{name}.txt"
    if (ROOT / xfails).exists():
        words += ["--xfails-file", str(xfails)]
    return [*words, "--results", str(record_of(name, pair, is_part(extra))), *extra]


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    to_pytest: list[str] = []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, to_pytest = arguments[:cut], arguments[cut + 1 :]
    parser = Parser(
        prog="ci/third_party",
        description="Install third parties' decoders, and run the conformance suites on them.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="decoder; --list prints them")
    parser.add_argument("--list", action="store_true", help="decoders and their environments")
    parser.add_argument(
        "--install",
        action="append",
        default=[],
        metavar="ENVIRONMENT",
        help="only make this environment (repeatable)",
    )
    parser.add_argument("--again", action="store_true", help="install even what is installed")
    parser.add_argument("--profile", default="ci", choices=PROFILES, help="default: %(default)s")
    parser.add_argument(
        "--pair", default="", metavar="NAME", help="model pair, smollm2-135m say (default: tiny)"
    )
    given = parser.parse_args(arguments)
    if not (given.names or given.list or given.install):
        raise BadInput("give a decoder, or --list, or --install ENVIRONMENT")
    return given, to_pytest


def _known(name: str, kind: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    raise BadInput(f"unknown {kind} {name!r}: {hint}")


def _ready(name: str, again: bool) -> int:
    try:
        install(name, again)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


def _decoder(name: str, given: argparse.Namespace, to_pytest: Sequence[str]) -> int:
    """Install what a decoder needs, and judge it; returns an exit status."""
    if name in ENGINES and (status := _ready(ENGINES[name].environment, given.again)):
        return status
    record = ROOT / record_of(name, given.pair, is_part(to_pytest))
    record.parent.mkdir(parents=True, exist_ok=True)
    words = command(name, given.profile, given.pair, to_pytest)
    print(f"== {name}: python {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
    _without_places(record)
    return 0 if done.returncode == 0 else 1


def _summary(records: Sequence[Path]) -> None:
    """The table of what was recorded."""
    found = [str(path) for path in records if (ROOT / path).exists()]
    if found:
        words = [sys.executable, "-m", "harness.report", "--conformance", *found]
        subprocess.run(words, cwd=ROOT, check=False)


def _without_places(record: Path) -> None:
    """Take this machine's directories out of a record, which is to be published."""
    if not record.exists():
        return
    text = record.read_text(encoding="utf-8")
    for place, shown in ((f"{ROOT}/", ""), (f"{Path.home()}/", "~/")):
        text = text.replace(place, shown)
    # Where an engine was compiled, here or at its makers, is in its messages.
    elsewhere = f"(?:{re.escape(tempfile.gettempdir())}|/home)"
    text = re.sub(rf"{elsewhere}/[^\s\"']*/", "TMP/", text)
    record.write_text(text, encoding="utf-8")


def _digest(name: str) -> str:
    return hashlib.sha256((RECIPES / name).read_bytes()).hexdigest()


def _with_this_python(variables: Mapping[str, str]) -> dict[str, str]:
    """Recipes say python3: let it be the one that runs this, for others may be too old."""
    without = {k: v for k, v in variables.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{variables.get('PATH', '')}"
    return {**without, "PATH": path}


if __name__ == "__main__":
    raise SystemExit(main())
