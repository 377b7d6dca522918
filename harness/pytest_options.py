"""What may be said to ``pytest suites/``, and what makes no sense."""

from __future__ import annotations

import inspect

import pytest

from harness.checks.budget import PROFILES
from harness.isolation import LIMITS, isolated_name, limits
from harness.pair_files import DTYPES

DEFAULT_DECODER = "reference"
DEFAULT_SEED = 20261129
FORMATS = ("terminal", "github")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add them; a hook of the plugin."""
    group = parser.getgroup("specdec", "conformance of a speculative decoder")
    add = group.addoption
    add(
        "--decoder",
        default=DEFAULT_DECODER,
        help="built-in name, entry point or package.module:factory",
    )
    add(
        "--decoder-option", action="append", default=[], metavar="K=V", help="handed to the factory"
    )
    add(
        "--isolate",
        action="store_true",
        help="run the decoder in a child process: it can neither hang nor end the run",
    )
    for limit in LIMITS:
        add(
            f"--{limit.option}",
            type=float,
            default=None,
            metavar=limit.metavar,
            help=f"with --isolate: {limit.meaning} (default: {limit.default:g})",
        )
    add(
        "--trust-remote-code",
        action="store_true",
        help="run the Python that a model's directory brings",
    )
    add("--pair", default="", help="model pair; default: the tiny pairs each suite names")
    add("--target", default=None, help="directory or hub id of a target, with --draft")
    add("--draft", default=None, help="directory or hub id of a draft, with --target")
    add(
        "--vocab-size",
        type=int,
        default=0,
        metavar="N",
        help="no weights at hand: prompts of ids below N, and only what needs no oracle",
    )
    add(
        "--context-length",
        type=int,
        default=128,
        metavar="N",
        help="with --vocab-size: longest prompt plus output to ask for (default: 128)",
    )
    add("--profile", default="smoke", metavar="NAME", help=f"how much: {', '.join(PROFILES)}")
    add("--draft-tokens", type=int, default=None, metavar="K", help="only this K")
    add("--samples", type=int, default=None, metavar="N", help="most generations of a test")
    add(
        "--seconds",
        type=float,
        default=None,
        metavar="S",
        help="of a test: fewer samples where the decoder does not manage as many",
    )
    add("--device", default="cpu", help="torch device of the models")
    add(
        "--dtype",
        default=DTYPES[0],
        metavar="NAME",
        help=f"of the models: {', '.join(DTYPES)} (of their linear layers)",
    )
    add("--seed", type=int, default=DEFAULT_SEED, help="of prompts and sampled requests")
    add("--results", default=None, metavar="FILE.jsonl", help="write verdicts as a record")
    add("--resume", action="store_true", help="go on with the record of --results")
    add(
        "--format", default=FORMATS[0], metavar="NAME", help=f"of the summary: {', '.join(FORMATS)}"
    )
    add("--badge", default=None, metavar="FILE.json", help="write an endpoint badge of shields.io")
    add("--xfails-file", default=None, metavar="FILE", help="items known to fail, with reasons")
    add("--skips-file", default=None, metavar="FILE", help="items to leave out, with reasons")


def check_options(config: pytest.Config) -> None:
    """Raise ValueError, in one line that says what to do, where they make no sense."""
    option = config.getoption
    if option("profile") not in PROFILES:
        raise ValueError(f"unknown profile {option('profile')!r}: known are {', '.join(PROFILES)}")
    if option("format") not in FORMATS:
        raise ValueError(f"unknown format {option('format')!r}: known are {', '.join(FORMATS)}")
    if option("dtype") not in DTYPES:
        raise ValueError(f"unknown --dtype {option('dtype')!r}: known are {', '.join(DTYPES)}")
    k = option("draft_tokens")
    if k is not None and k < 1:
        raise ValueError(f"--draft-tokens is {k}: it must be at least 1")
    if option("seconds") is not None and option("seconds") <= 0:
        raise ValueError(f"--seconds is {option('seconds')}: it must be above 0")
    if option("samples") is not None and option("samples") < 1:
        raise ValueError(f"--samples is {option('samples')}: it must be at least 1")
    if option("resume") and not option("results"):
        raise ValueError("--resume needs --results FILE.jsonl, the record to go on with")
    options = decoder_options(config)
    if bool(option("target")) != bool(option("draft")):
        raise ValueError("give both --target and --draft (a directory or a hub id each)")
    if sum(map(bool, (option("pair"), option("target"), option("vocab_size")))) > 1:
        raise ValueError("give one of --pair, --target with --draft, and --vocab-size")
    if option("vocab_size") < 0:
        raise ValueError(f"--vocab-size is {option('vocab_size')}: it must be at least 1")
    # Only where there is something to check: importing torch takes its time.
    if option("pair") or options or decoder_name(config) != DEFAULT_DECODER:
        from harness.adapters import find_factory
        from harness.models import check_name

        signature = inspect.signature(find_factory(decoder_name(config)))
        try:
            signature.bind("pair", **options)
        except TypeError as error:
            raise ValueError(
                f"--decoder-option: {option('decoder')!r} is {signature}: {error}"
            ) from None
        if option("pair"):
            check_name(option("pair"))


def decoder_name(config: pytest.Config) -> str:
    """What ``load_decoder`` is to find."""
    option = config.getoption
    return isolated_name(option("decoder")) if option("isolate") else str(option("decoder"))


def decoder_options(config: pytest.Config) -> dict[str, str]:
    """What ``--decoder-option`` hands to the factory, and the limits of ``--isolate``."""
    found = {}
    for text in config.getoption("decoder_option"):
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--decoder-option {text!r}: it must be KEY=VALUE")
        found[key] = value
    option = config.getoption
    given = {limit.name: option(limit.name) for limit in LIMITS}
    return found | limits(given, option("isolate"))
