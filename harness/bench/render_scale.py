"""``python -m harness.bench.render_scale``: what rendering a long record takes.

Writes a record of made-up rows, renders it in a process of its own, and says what that took. The
rows look like those of a measurement: lengths, rounds and times vary, a few outputs are near ties,
a few are wrong, and one decoder does not tell its rounds.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from harness.command_line import Parser
from harness.record import PARTS, GenerationRow, Header, PairInfo, Writer

DECODERS = ("reference", "reference-ngram", "transformers-assisted", "transformers-lookup")
TASKS = ("chat", "code", "math", "creative")
VOCABULARY = 49_152
DRAFT_TOKENS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every format."""
    parser = Parser("python -m harness.bench.render_scale", __doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=64, help="of an output (default: 64)")
    parser.add_argument("--format", action="append", help="repeatable (default: terminal, html)")
    parser.add_argument("--record", type=Path, help="keep the record here")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        path = given.record or Path(directory) / "record.jsonl"
        write(path, given.rows, given.tokens)
        print(f"{given.rows:,} rows, {path.stat().st_size / 2**20:.0f} MiB")
        rows = [
            (name, *_rendered(path, name, Path(directory)))
            for name in given.format or ["terminal", "html"]
        ]
    print(tabulate(rows, ["format", "CPU seconds", "MiB at most"], floatfmt=".1f"))


def _rendered(path: Path, name: str, directory: Path) -> tuple[float, float]:
    """CPU seconds and the largest memory so far of a process that renders."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "harness.report", "--from", str(path), "--format", name]
    command += ["--out", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, after.ru_maxrss / 1024


def write(path: Path, rows: int, tokens: int) -> None:
    """A record of so many rows."""
    with Writer(path, _header()) as writer:
        for row in made_up(rows, tokens):
            writer.add(row)


def _header() -> Header:
    return Header(
        command="python -m harness.bench.render_scale",
        started="2026-01-01T00:00:00+00:00",
        seed=0,
        alpha=0.05,
        decoders=list(DECODERS),
        pair=PairInfo("made up", "", "", "cpu", "float32"),
        versions={},
        machine={},
        options={"draft_tokens": DRAFT_TOKENS, "temperature": 0.0},
    )


def made_up(count: int, tokens: int) -> Iterator[GenerationRow]:
    """Rows as a measurement gives them, every prompt by every decoder."""
    generator = random.Random(0)
    plain: list[int] = []
    for number in range(count):
        decoder = DECODERS[number % len(DECODERS)]
        prompt = number // len(DECODERS)
        if decoder == DECODERS[0]:
            plain = [generator.randrange(VOCABULARY) for _ in range(tokens)]
        accepted: list[int] = []
        while sum(accepted) + len(accepted) < tokens:
            accepted.append(generator.choice((0, 0, 0, 1, 1, 2, 3)))
        seconds = len(accepted) * 0.05 * generator.lognormvariate(0, 0.1)
        wrong = generator.random() < 0.002
        tied = not wrong and generator.random() < 0.002
        spoken = [*plain[:-1], (plain[-1] + 1) % VOCABULARY] if wrong or tied else plain
        told = not decoder.endswith("lookup")
        yield GenerationRow(
            decoder=decoder,
            task=TASKS[prompt % len(TASKS)],
            prompt_id=f"prompt-{prompt}",
            repeat=0,
            prompt_tokens=30,
            plain_tokens=plain,
            plain_seconds=tokens * 0.04,
            tokens=spoken,
            seconds=seconds,
            first=("plain", "speculative")[prompt % 2],
            plain_finish_reason="length",
            finish_reason="length",
            drafted=[DRAFT_TOKENS] * len(accepted) if told else None,
            accepted=accepted if told else None,
            plain_parts=dict.fromkeys(PARTS, tokens * 0.01) if told else {},
            parts=dict.fromkeys(PARTS, seconds / 4) if told else {},
            identical=not (wrong or tied),
            near_tie="logits 1e-06 apart" if tied else "",
            fault=f"token {tokens - 1} is another one" if wrong else "",
        )


if __name__ == "__main__":
    main()
