"""``python -m harness.fleet``: the suites on many workers, or a share of them on this machine.

The items of a profile are handed out one by one to the workers of ``--executor``; their verdicts
come back and are written here, in one record. Without a cluster, give each machine a share of the
items by ``--shard I/N``, and one ``--run-id`` to all; ``python -m harness.record_merge`` puts the
records together. Every item has its part of the whole run's alpha, whoever runs it.

exit status: 0 all passed or unsupported, 1 FAIL, 2 bad input, 3 an error, or nothing could be said
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from harness import executors, matrix, record
from harness.adapters import DecoderError, NotInstalledError, find_factory
from harness.checks.budget import ALPHA, PROFILES
from harness.command_line import BadInput, Parser, key_values, refuse
from harness.items import items
from harness.matrix import Row
from harness.models import TINY_PAIRS, load_pair
from harness.pair_files import UnsupportedPairError
from harness.report.outcome import exit_status
from harness.verdict import Status, Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the share of the items that was asked for, and write their record."""
    options = _parser().parse_args(arguments)
    try:
        executors.check_options(options)
        shard, shards = shard_of(options.shard, options.run_id)
        decoder_options = key_values("--decoder-option", options.decoder_option)
        find_factory(options.decoder)
        chosen = [str(i) for i in items(options.profile) if _wanted(str(i), options.checks)]
        if not chosen:
            raise BadInput("--checks names no item of this profile: suite, or suite.test")
        record.check_writable("--results", options.results)
        rows = [
            Row(
                options.decoder, [name], options.profile, seed=options.seed, options=decoder_options
            )
            for name in chosen[shard - 1 :: shards]
        ]
        with (
            executors.executor(options) as pool,
            record.Writer(options.results, _header(options, decoder_options)) as writer,
        ):
            for row in tqdm(pool.map(judged, rows), total=len(rows), unit="item", disable=None):
                writer.add(row)
    except (BadInput, DecoderError, ValueError) as error:
        return refuse(error)
    found = record.read(options.results)
    counts = Counter(row.verdict.status for row in found.verdicts)
    words = ", ".join(f"{counts[s]} {s.value}" for s in Status if counts[s]) or "nothing ran"
    print(f"verdicts of {options.decoder}: {words}")
    for row in found.verdicts:
        if row.verdict.status not in (Status.PASS, Status.UNSUPPORTED):
            print(f"{row.verdict.status.value} {row.item}: {row.verdict.message}")
    return exit_status([found])


def judged(row: Row) -> record.VerdictRow:
    """The verdict on the only item of a row: what a worker does."""
    begin = time.perf_counter()
    (name,) = row.items
    check = name.partition("[")[0]
    versions: dict[str, str] = {}
    retries = 0
    try:
        verdict, subject = matrix.judge(row, name)
        versions, retries = subject.versions, subject.retries
    except (NotInstalledError, UnsupportedPairError) as error:
        verdict = Verdict(check=check, status=Status.UNSUPPORTED, message=str(error))
    except Exception as error:  # a decoder that cannot be built, or whatever a check raises
        told = str(error) if isinstance(error, DecoderError) else f"{type(error).__name__}: {error}"
        verdict = Verdict(check=check, status=Status.ERROR, message=told)
    suite, _, test = name.partition(".")
    return record.VerdictRow(
        decoder=row.decoder,
        item=f"suites/test_{suite}.py::test_{test}",
        suite=suite,
        seconds=round(time.perf_counter() - begin, 3),
        decoder_versions=versions,
        retries=retries,
        verdict=verdict,
    )


def shard_of(text: str, run_id: str) -> tuple[int, int]:
    """``2/4`` as (2, 4).

    Raises
    ------
    BadInput
        If it is no such thing, or the run has no name by which its shards are found again.
    """
    number, slash, count = text.partition("/")
    if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise BadInput(f"--shard is {text!r}: it must be I/N, the first one of four is 1/4")
    if int(count) > 1 and not run_id:
        raise BadInput("--shard needs --run-id NAME, the same for all shards of the run")
    return int(number), int(count)


def _wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(name == p or name.startswith((f"{p}[", f"{p}.")) for p in patterns)


def _header(options: argparse.Namespace, decoder_options: dict[str, str]) -> record.Header:
    """As the suites' own record has it, and which share of which run this is."""
    seed = PROFILES[options.profile].seed if options.seed is None else options.seed
    return record.Header(
        command=record.command_line(),
        started=record.now(),
        seed=seed,
        seeds={"prompts": seed, "requests": seed},
        alpha=ALPHA,
        decoders=[options.decoder],
        pair=record.PairInfo("tiny pairs", "made from seeds", "", "cpu", "float32"),
        fingerprints={name: load_pair(name).fingerprint() for name in TINY_PAIRS},
        versions=record.versions(),
        machine=record.machine(),
        options={
            "profile": options.profile,
            "shard": options.shard,
            "decoder_options": decoder_options,
        },
        run=options.run_id or uuid.uuid4().hex[:12],
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m harness.fleet", __doc__)
    add = parser.add_argument
    add("--decoder", default="reference", metavar="NAME", help="as for `pytest suites`")
    add("--decoder-option", action="append", default=[], metavar="K=V", help="repeatable")
    add("--profile", default="smoke", choices=PROFILES)
    add("--checks", nargs="+", default=[], metavar="CHECK", help="only these: suite or suite.test")
    add("--seed", type=int, default=None, metavar="S", help="of prompts and sampled requests")
    add("--shard", default="1/1", metavar="I/N", help="every N-th item, from the I-th on")
    add("--run-id", default="", metavar="NAME", help="of the run whose shards are merged later")
    add("--results", type=Path, required=True, metavar="FILE.jsonl", help="the record")
    executors.add_options(parser, "items")
    return parser


if __name__ == "__main__":
    sys.exit(main())
