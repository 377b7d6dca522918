"""``python -m harness.evidence_shards``: the bets of ``distribution.evidence`` on many workers.

Every shard decodes requests with seeds of its own, speculatively and plainly, scores them under the
oracle, and bets. What comes back is wealth, a few kilobytes a shard; laws, a row of the vocabulary
for each token, never travel. The shards' wealth is then that of one test
(``harness.stats.eprocess_merge``), whose verdict is the check's own.

exit status: 0 PASS, 1 FAIL, 2 bad input, 3 anything else
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from harness import executors, record
from harness.adapters import DecoderError, load_decoder
from harness.checks import evidence
from harness.checks.arms import TwoArms
from harness.checks.budget import ALPHA, PROFILES, Budget
from harness.checks.reproduce import rerun
from harness.checks.subject import Subject, check
from harness.command_line import BadInput, Parser, key_values, refuse
from harness.models import PairError, load_pair
from harness.stats.eprocess_merge import merge, merge_certificates, merge_pairs
from harness.verdict import Status, Verdict

APART = 1_000_000  # seeds between two shards: more than a shard has requests


@dataclass(frozen=True)
class Shard:
    """A share of the tokens of one test.

    Attributes
    ----------
    decoder : str
        As ``load_decoder`` takes it, with its ``options``.
    pair : dict of str to str
        As ``load_pair`` takes it.
    setting : str
        Of ``evidence.SETTINGS``.
    budget : Budget
        Of this shard, whose seed no other one has.
    """

    decoder: str
    options: dict[str, str]
    pair: dict[str, Any]
    setting: str
    budget: Budget


def split(whole: Shard, count: int) -> list[Shard]:
    """The same test in so many shards, each with its part of the tokens and with its own seeds."""
    budget = whole.budget
    return [
        dataclasses.replace(
            whole,
            budget=dataclasses.replace(
                budget,
                seed=budget.seed + number * APART,
                samples=math.ceil(budget.samples / count),
                large_tokens=math.ceil(budget.large_tokens / count),
            ),
        )
        for number in range(count)
    ]


def bets(shard: Shard) -> dict[str, Any] | Verdict:
    """Decode, score and bet: what a worker does.

    Returns
    -------
    dict or Verdict
        What it has won, in JSON types; or why it could not.
    """
    arms = _arms(shard)
    done = _run(arms.subject, arms)
    if not done.passed:
        return done
    return {
        "speculative": arms.speculative.process.state(),
        "plain": arms.plain.process.state(),
        "between": arms.between.state(),
        "certificates": [certificate.state() for certificate in arms.certificates],
        "growth": arms.reach.growth.state(),
        "kept": arms.reach.kept,
        "effective": arms.reach.effective,
        "batches": arms.batches,
        "off": arms.off,
    }


@check(evidence.NAME, "sampling", "seed")
def _run(subject: Subject, arms: TwoArms) -> Verdict:
    """Whether the decoder answers. Of one that takes no seeds two workers may draw the same."""
    for request in arms.requests(speculate=True):
        subject.require(*request.capabilities())
    arms.run()
    return Verdict(check=evidence.NAME, status=Status.PASS, message="")


def merged(whole: Shard, states: Sequence[dict[str, Any]]) -> TwoArms:
    """The shards' wealth as that of one test."""
    arms = _arms(whole)
    for name in ("speculative", "plain"):
        shards = {str(number): state[name] for number, state in enumerate(states, 1)}
        merge(getattr(arms, name).process, shards)
    arms.between = merge_pairs([state["between"] for state in states])
    for number, certificate in enumerate(arms.certificates):
        merge_certificates(certificate, [state["certificates"][number] for state in states])
    for state in states:
        arms.reach.growth.add(state["growth"])
    arms.reach.kept = sum(state["kept"] for state in states)
    arms.reach.effective = sum(state["effective"] for state in states)
    arms.batches = sum(state["batches"] for state in states)
    arms.off = max(state["off"] for state in states)
    return arms


def judged(whole: Shard, count: int, executor: Executor) -> Verdict:
    """The verdict of ``distribution.evidence`` by the shards' wealth together."""
    shown = tqdm(executor.map(bets, split(whole, count)), total=count, unit="shard", disable=None)
    states = list(shown)
    if broken := [state for state in states if isinstance(state, Verdict)]:
        return broken[0]
    arms = merged(whole, [state for state in states if not isinstance(state, Verdict)])
    verdict = evidence.conclusion(arms, whole.setting)
    if verdict.status in (Status.FAIL, Status.ERROR):
        again = rerun(arms.subject, evidence.evidence, whole.budget, whole.setting)
        verdict = msgspec.structs.replace(verdict, repro=again)
    return verdict


def _arms(shard: Shard) -> TwoArms:
    return TwoArms(_subject(shard), shard.budget, evidence.SETTINGS[shard.setting])


def _subject(shard: Shard) -> Subject:
    return _loaded(shard.decoder, json.dumps(shard.options), json.dumps(shard.pair))


@functools.lru_cache(maxsize=1)
def _loaded(decoder: str, options: str, pair: str) -> Subject:
    """Loaded once in a worker, however many shards it gets."""
    loaded_with, given = json.loads(pair), json.loads(options)
    found = load_pair(**loaded_with)
    return Subject(load_decoder(decoder, found, given), found, decoder, given, loaded_with)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a decoder by all its shards."""
    options = _parser().parse_args(arguments)
    begin = time.perf_counter()
    try:
        executors.check_options(options)
        if options.shards < 1:
            raise BadInput(f"--shards is {options.shards}: at least 1")
        if options.samples is not None and options.samples < 1:
            raise BadInput(f"--samples is {options.samples}: at least 1")
        whole = _whole(options)
        if options.results:
            record.check_writable("--results", options.results)
        subject = _subject(whole)
        with executors.executor(options) as pool:
            verdict = judged(whole, options.shards, pool)
    except (BadInput, DecoderError, PairError, ValueError) as error:
        return refuse(error)
    print(verdict)
    if options.results:
        _write(options, subject, verdict, time.perf_counter() - begin)
    return {Status.PASS: 0, Status.FAIL: 1}.get(verdict.status, 3)


def _whole(options: argparse.Namespace) -> Shard:
    budget = dataclasses.replace(PROFILES[options.profile], seed=options.seed, alpha=ALPHA)
    if options.samples is not None:
        budget = dataclasses.replace(budget, samples=options.samples)
    pair = {"name": options.pair, "device": options.device, "dtype": options.dtype}
    return Shard(
        options.decoder,
        key_values("--decoder-option", options.decoder_option),
        pair,
        options.setting,
        budget,
    )


def _write(options: argparse.Namespace, subject: Subject, verdict: Verdict, seconds: float) -> None:
    """A record of one verdict."""
    pair = subject.pair
    header = record.Header(
        command=record.command_line(),
        started=record.now(),
        seed=options.seed,
        alpha=ALPHA,
        decoders=[options.decoder],
        pair=record.PairInfo(
            pair.name, pair.source, pair.fingerprint(), str(pair.device), options.dtype
        ),
        versions=record.versions(),
        machine=record.machine(),
        options={"profile": options.profile, "shards": options.shards, **subject.options},
    )
    with record.Writer(options.results, header) as writer:
        writer.add(
            record.VerdictRow(
                decoder=options.decoder,
                item=f"suites/test_distribution.py::test_evidence[{pair.name}-{options.setting}]",
                suite="distribution",
                seconds=round(seconds, 3),
                decoder_versions=subject.versions,
                verdict=verdict,
            )
        )


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m harness.evidence_shards", __doc__)
    add = parser.add_argument
    add("--decoder", default="reference", metavar="NAME", help="as for `pytest suites`")
    add("--decoder-option", action="append", default=[], metavar="K=V", help="repeatable")
    add("--pair", default="tiny", metavar="NAME", help="model pair (default: %(default)s)")
    add("--device", default="cpu", help="torch device of the models (default: %(default)s)")
    add("--dtype", default="float32", help="of the models (default: %(default)s)")
    add("--setting", default="T=1", choices=evidence.SETTINGS, help="how tokens are drawn")
    add("--profile", default="smoke", choices=PROFILES, help="of all shards together")
    add("--samples", type=int, default=None, metavar="N", help="the same, in generations")
    add("--seed", type=int, default=PROFILES["smoke"].seed, help="of the first shard's requests")
    add("--shards", type=int, default=4, metavar="N", help="default: %(default)s")
    add("--results", type=Path, default=None, metavar="FILE.jsonl", help="write a record")
    executors.add_options(parser, "shards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
