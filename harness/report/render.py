"""A record as a section of a report: a pure function, which knows no model and no format."""

from __future__ import annotations

from typing import Any

from harness.record import Header, Record
from harness.report import benchmark, beside, claims, conformance, retries
from harness.report.conformance import listed
from harness.report.document import Notes, Section

BUSY = 0.75  # load per core before the run from which on it is called disturbed


def render(record: Record) -> Section:
    """All that a record says."""
    section = Section(f"Speculative decoding: {record.header.pair.name}", facts(record.header))
    if record.problems:
        section.notes.append(Notes("Problems of this record", listed(record.problems)))
    conformance.add(record, section)
    retries.add(record, section)
    beside.add_doubts(record, section)  # before the figures are explained
    benchmark.add(record, section)
    beside.add(record, section)
    claims.add(record, section)
    if not record.verdicts and not record.generations:
        section.notes.append(Notes("Result", ["nothing was measured"]))
    if disturbed := busy(record.header):
        section.notes.append(Notes("Machine", [disturbed]))
    return section


def facts(header: Header) -> list[tuple[str, str]]:
    """What ran, where, with what."""
    pair, options, machine = header.pair, header.options, header.machine
    choice = options.get("draft_choice", "right")
    known = ("system", "architecture", "processor", "cores", "threads", "gpu")
    found = {
        "decoders": ", ".join(header.decoders),
        "pair": pair.name
        + (f" ({pair.source})" if pair.source else "")
        + (f", {choice} draft" if choice != "right" else "")
        + f", {pair.dtype} on {pair.device}"
        + (f", fingerprint {pair.fingerprint[:12]}" if pair.fingerprint else ""),
        "decoding": _decoding(options),
        "size": _size(options),
        "prompts": ", ".join(
            f"{file['name']} (sha256 {file['sha256'][:12]})"
            for file in options.get("prompts_files", ())
        ),
        "options": ", ".join(f"{k}={v}" for k, v in options.get("decoder_options", {}).items()),
        "machine": ", ".join(
            f"{machine[name]} {name}" if name in ("cores", "threads") else machine[name]
            for name in known
            if machine.get(name)
        ),
        "versions": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
        "seed": str(header.seed),
        "started": header.started,
        "command": header.command,
    }
    return [(name, value) for name, value in found.items() if value]


def _decoding(options: dict[str, Any]) -> str:
    if "temperature" not in options:
        return ""
    temperature = options["temperature"]
    law = f"sampled at temperature {temperature:g}" if temperature else "greedy"
    size = options.get("batch_size", 1)
    together = "one request" if size == 1 else f"{size} requests (a batch, which counts once)"
    return f"{law}, K = {options.get('draft_tokens')} drafted tokens a round, {together} at a time"


def _size(options: dict[str, Any]) -> str:
    parts = [f"profile {options['profile']}"] if "profile" in options else []
    sizes = [options["size"]] if "size" in options else []
    if options.get("prompt_tokens"):
        sizes.append(f"prompts of {options['prompt_tokens']} tokens")
    return ": ".join([*parts, ", ".join(sizes)] if sizes else parts)


def busy(header: Header) -> str:
    """A sentence about a machine that had other things to do, or nothing."""
    load, cores = header.options.get("load_average"), int(header.machine.get("cores") or 0)
    if load is None or not cores or load <= BUSY * cores:
        return ""
    return (
        f"busy before the run began (load {load:g} on {cores} cores): tokens per second come out "
        "too low and intervals too wide, ratios of paired arms suffer least; on a busy machine "
        "OMP_NUM_THREADS=1 is steadier, and often much faster"
    )
