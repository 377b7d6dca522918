"""Measure: options -> a record file. Knows models and decoders, and no report format."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers.utils import logging

from harness.bench import drafts, gate
from harness.bench.batches import batches_of, measure_batches, schedule_batches
from harness.bench.estimate import CONFIDENCE
from harness.bench.measure import Settings, measure, missing_capabilities, schedule
from harness.bench.memory import footprint
from harness.bench.overlap import with_overlap
from harness.bench.probes import PeakMemory
from harness.bench.prompt_files import PromptFile, by_task, read_files
from harness.bench.prompt_lengths import of_length
from harness.bench.retries import with_retries
from harness.bench.tasks import WorkloadError
from harness.bench.workload import Prompt, load_workload
from harness.checks import greedy
from harness.checks.budget import ALPHA
from harness.command_line import BadInput
from harness.contract import Decoder
from harness.models import ModelPair, PairError
from harness.record import (
    GenerationRow,
    Header,
    PairInfo,
    VerdictRow,
    check_writable,
    command_line,
    machine,
    now,
    versions,
)
from harness.report.loaded import Models
from harness.report.options import Options
from harness.report.render import busy
from harness.report.resume import judged, missing
from harness.resume import Kept, kept, require
from harness.verdict import Status, Verdict

RECORD = "record.jsonl"


def run(options: Options) -> Path:
    """Measure what the options ask for; returns the record, which is there even after Ctrl-C.

    Raises
    ------
    BadInput
        If a pair, a decoder, a task, its prompts or the output directory cannot be had.
    """
    for _ in steps(options, Models(), _with_progress):
        pass
    return (options.out or Path()) / RECORD


def steps(
    options: Options,
    models: Models,
    shown: Callable[[Iterator[GenerationRow], int], Iterator[GenerationRow]] = lambda rows, _: rows,
    marks: Mapping[str, Any] | None = None,
) -> Iterator[int]:
    """The same row by row, so that settings can be measured in turns.

    Parameters
    ----------
    models : Models
        Shared between the settings.
    shown : callable
        Given the rows as they come, and how many there will be: shows the progress.
    marks : mapping, optional
        What more the record's header says of this setting.

    Yields
    ------
    int
        How many rows there will be: once when all is ready, then after each row.
    """
    profile = options.size
    path = (options.out or Path()) / RECORD
    if options.resume:
        require(path)
    try:
        check_writable("the record", path)
    except ValueError as error:
        raise BadInput(f"{error}; choose another --out") from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        files = read_files(options.prompts_files)
        own = by_task(files, options.tasks) if files else None
        pair = models.pair(options)
        prompts = load_workload(
            pair,
            list(own or options.tasks),
            profile.prompts,
            profile.max_new_tokens,
            own,
        )
        if options.prompt_tokens:
            length, new = options.prompt_tokens, profile.max_new_tokens
            prompts = of_length(prompts, length, new, pair.context_length)
        batches = batches_of(prompts, options.batch_size)
    except (PairError, WorkloadError) as error:
        raise BadInput(str(error)) from None
    decoders = {name: models.decoder(name, options) for name in options.decoders}
    settings = Settings(
        max_new_tokens=profile.max_new_tokens,
        draft_tokens=options.draft_tokens,
        vocab_size=pair.vocab_size,
        temperature=options.temperature,
        eos=pair.eos,
        seed=options.seed,
        batch_size=options.batch_size,
    )
    lacking = {name: missing_capabilities(decoder, settings) for name, decoder in decoders.items()}
    able = [name for name in decoders if not lacking[name]]
    header = _header(options, pair, decoders, prompts, files, marks or {})
    already = kept(path, header) if options.resume else Kept()
    if already.told:
        print(f"note: {already.told}", file=sys.stderr)
    judge = functools.partial(greedy.problem_of, pair)
    synchronise = _synchroniser(pair.device)
    if options.batch_size == 1:
        trials = missing(already, schedule(able, prompts, profile.repeats, options.seed))
        memory = PeakMemory.of(pair.device)
        total, rows = len(trials), measure(decoders, trials, settings, judge, synchronise, memory)
    else:
        together = schedule_batches(able, batches, profile.repeats, options.seed)
        total = sum(map(len, together))
        rows = measure_batches(decoders, together, settings, judge, synchronise)
    rows = with_retries(rows, decoders)
    rows = with_overlap(rows, pair, decoders, prompts, options.temperature)
    if not marks and (disturbed := busy(header)):
        print(f"note: the machine was {disturbed}", file=sys.stderr)
    yield total
    try:
        with already.writer(path, header) as writer:
            for name, capabilities in lacking.items():
                if capabilities and not judged(already, name):
                    writer.add(_unsupported(name, capabilities))
            measured = list(already.generations)
            for row in shown(rows, total):
                writer.add(row)
                measured.append(row)
                yield total
            if options.temperature > 0:
                unjudged = {name: decoders[name] for name in able if not judged(already, name)}
                for verdict in _judged(pair, unjudged, measured, prompts, settings, len(able)):
                    writer.add(verdict)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept, and --resume goes on", file=sys.stderr)


def _judged(
    pair: ModelPair,
    decoders: dict[str, Decoder],
    rows: Sequence[GenerationRow],
    prompts: Sequence[Prompt],
    settings: Settings,
    shares: int,
) -> Iterator[VerdictRow]:
    """Verdicts on sampled outputs; the decoders of a run share its alpha."""
    ids = {(prompt.task, prompt.prompt_id): prompt.ids for prompt in prompts}
    for name, decoder in tqdm(decoders.items(), "judging", unit="decoder"):
        own = [row for row in rows if row.decoder == name]
        started = time.perf_counter()
        found = gate.judge(pair, own, ids, settings, decoder.capabilities, ALPHA / shares)
        yield gate.as_row(name, settings, time.perf_counter() - started, found)


def _synchroniser(device: torch.device) -> Callable[[], None]:
    """A wait for the device: its work is queued, and the clock would miss it."""
    if device.type == "cpu":
        return lambda: None
    return lambda: torch.accelerator.synchronize(device)


def _with_progress(rows: Iterator[GenerationRow], total: int) -> Iterator[GenerationRow]:
    # A log file gets a line now and then, a terminal a moving bar.
    interval = 0.2 if sys.stderr.isatty() else 30.0
    yield from tqdm(rows, "measuring", total=total, unit="pair", mininterval=interval)


def _header(
    options: Options,
    pair: ModelPair,
    decoders: dict[str, Decoder],
    prompts: Sequence[Prompt],
    files: Sequence[PromptFile],
    marks: Mapping[str, Any],
) -> Header:
    return Header(
        command=command_line(),
        started=now(),
        seed=options.seed,
        seeds=_seeds(options),
        alpha=round(1 - CONFIDENCE, 6),
        decoders=list(decoders),
        pair=PairInfo(
            name=pair.name,
            source=pair.source,
            fingerprint=pair.fingerprint(),
            device=str(pair.device),
            dtype=options.dtype,
        ),
        versions=versions(),
        machine=machine(),
        options={
            "target": options.target,
            "draft": options.draft,
            "profile": options.profile,
            "prompts": options.prompts,
            "max_new_tokens": options.max_new_tokens,
            "size": str(options.size),
            "tasks": list(dict.fromkeys(prompt.task for prompt in prompts)),
            "prompts_files": [{"name": str(file.path), "sha256": file.sha256} for file in files],
            "draft_tokens": options.draft_tokens,
            "temperature": options.temperature,
            "batch_size": options.batch_size,
            "prompt_tokens": options.prompt_tokens,
            "draft_choice": options.draft_choice,
            "decoder_options": options.decoder_options,
            "declared_lossy": [
                n for n, d in decoders.items() if "declared_lossy" in d.capabilities
            ],
            "eos": list(pair.eos),
            "memory": footprint(pair),
            "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            **marks,
        },
    )


def _seeds(options: Options) -> dict[str, int]:
    """All that a run draws from; what a pair was made from is said by its source."""
    seeds = {"order": options.seed, "requests": options.seed}
    return seeds | ({"draft": drafts.SEED} if options.draft_choice == "mismatched" else {})


def _unsupported(name: str, capabilities: list[str]) -> VerdictRow:
    needs = ", ".join(capabilities)
    return VerdictRow(
        decoder=name,
        item="speedup",
        suite="benchmark",
        seconds=0.0,
        verdict=Verdict(
            check="speedup",
            status=Status.UNSUPPORTED,
            message=f"not measured: it does not declare the capabilities {needs}",
        ),
    )
